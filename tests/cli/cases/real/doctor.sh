# SPDX-License-Identifier: Apache-2.0
# Leaves nothing behind, and looks at what matters.
exec 2>&1
mkdir remote
breakwater doctor --remote "file://$PWD/remote" > /dev/null; echo "exit $?"
breakwater doctor --remote "file://$PWD/remote" --json > out.json
"$PYTHON" "$TOOLS/json_check.py" doctor < out.json
"$PYTHON" - << 'END'
import json
findings = json.load(open("out.json"))["findings"]
words = " ".join(f["object"] + " " + f["message"] for f in findings).lower()
for word in ("direct i/o", "io_uring", "huge pages", "userfaultfd", "memlock", "free", "create once"):
    print(word, word in words)
END
find remote
breakwater doctor --remote "file://$PWD/nothing" > out.txt; echo "exit $?"; grep nothing out.txt; ls
