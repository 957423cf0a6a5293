"""Where groups are trained: `local`, on the cores or the GPU of this machine, or `ray`, on the machines of a cluster.

The runner asks an `Engine` for two things, the time of a step and a `Crew` at the groups of a plan, and keeps what comes
back. Which engine it is changes no result.
"""
