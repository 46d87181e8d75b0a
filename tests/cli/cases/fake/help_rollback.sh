# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater rollback --help
breakwater help rollback | cmp - <(breakwater rollback -h) && echo same
