# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater show --help
breakwater help show | cmp - <(breakwater show -h) && echo same
