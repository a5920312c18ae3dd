"""How far groups are behind: lag, its age and Burrow's status, from commits and ends of logs."""
