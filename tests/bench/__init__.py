"""How fast pybroker is beside PostgreSQL itself and beside other queues: `make bench`, explained in docs/performance.md.

Each line is measured beside what it is a ratio of, in the same rounds of the same run, since only such ratios can be
carried from one machine or day to another.

    scenarios   what is measured: rows of data
    peers       other queues, measured in the same way if they are here
    stage       the servers and databases on which a scenario runs
    machine     where it ran, and with which settings
    results     what was measured so far, kept in a file, and what follows from it
    report      the table, the JSON file and the page with plots
"""
