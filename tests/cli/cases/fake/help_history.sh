# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater history --help
breakwater help history | cmp - <(breakwater history -h) && echo same
