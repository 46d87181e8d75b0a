# SPDX-License-Identifier: Apache-2.0
# What went wrong decides the exit code.
export BREAKWATER_REMOTE=file:///x
breakwater ls missing; echo "exit $?"
breakwater show missing; echo "exit $?"
breakwater show gpt 55; echo "exit $?"
breakwater show gpt 1300; echo "exit $?"
breakwater show gpt 00000000000000001300.9-0a1b2c3d.0; echo "exit $?"
breakwater drain lost; echo "exit $?"
breakwater verify lost; echo "exit $?"
breakwater diff gpt 1000 7; echo "exit $?"
breakwater prune gpt --retire 1200 --yes; echo "exit $?"
