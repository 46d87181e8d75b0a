# SPDX-License-Identifier: Apache-2.0
# The library says the version, not the command.
breakwater version
