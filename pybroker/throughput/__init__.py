"""The tests of "Service Broker: Performance and Scalability Techniques", with Spark as the test clients.

    matrix      which cells there are: initiators, threads, ratio of used dialogs, payload, series
    testbed     the servers of a cell and a worker for each: embedded ones, or somebody's own
    containers  the same as containers; equipment says which images and quotas
    objects     the whitepaper's objects in the databases (.sql), and what lets these reach each other
    clients     a cell's load: a barrier stage of Spark, a task for each test client thread
    sampling    what is read from the servers meanwhile
    cell        one cell from warm-up to the last message
    analysis    Spark SQL over what the target wrote: accounts, rates, latencies, processor seconds
    bounds      what kept a cell from being faster
    estimates   what its repetitions say together
    results     what is kept, so that a run can go on after an interruption
    series      the cells one after the other
    figures     the whitepaper's figures 2 to 5 with our lines
    costs       what a message and a batch cost each role
    model       what other hardware would give
    answers     the whitepaper's recommendations and conclusions, measured
    report      one HTML page, of report.html.jinja

`pybroker throughput` runs it; docs/whitepaper.md explains it. Needs the extra
`spark`, and `embedded` or `containers`.
"""
