"""From decoded records to the history of every group.

A group's records are folded in the order of the log: a state, the next record, the rows that became
known, and the next state. Whoever keeps the state can go on at any record, so a run costs what is
new, and cutting a log into runs changes nothing.
"""
