# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater import --help
breakwater help import | cmp - <(breakwater import -h) && echo same
