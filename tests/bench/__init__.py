"""How fast pybroker is beside PostgreSQL itself and beside other queues: `make bench`, explained in docs/performance.md.

Each line is measured beside what it is a ratio of, in the same rounds of the same run, since only such ratios can be
carried from one machine or day to another.

    scenarios   what is measured, and what is demanded of it: rows of data
    peers       other queues, measured in the same way if they are here
    loads       the kinds of scenario that run in one database
    between     the kinds that run between databases, with workers
    stage       the servers and databases on which a scenario runs
    waits       what sessions at work were seen waiting for
    profiles    where a line's time goes, by function, by part of PostgreSQL, by the workers' code
    machine     where it ran, and with which settings
    results     what was measured so far, kept in a file, and what follows from it
    report      the table, the JSON file and the page
    plots       the page's plots
    capacity    `make capacity`: what a load needs, from the figures of a run
"""
