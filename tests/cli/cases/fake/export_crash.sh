# SPDX-License-Identifier: Apache-2.0
# What a crash left in the staging folder is taken away; a second export at once is refused.
exec 2>&1
export BREAKWATER_REMOTE=file:///x
mkdir -p d/.breakwater-export; echo junk > d/.breakwater-export/0
breakwater export gpt 1000 --to d
find d | sort
exec 9< d
flock 9
breakwater export gpt 1000 --to d --force; echo "exit $?"
