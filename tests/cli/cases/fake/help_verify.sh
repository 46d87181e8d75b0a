# The help of the verb, and the same by the verb help.
breakwater verify --help
breakwater help verify | cmp - <(breakwater verify -h) && echo same
