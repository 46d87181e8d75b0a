# SPDX-License-Identifier: Apache-2.0
# Blobs and metadata out, in, and out again.
exec 2>&1
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
"$PYTHON" "$TOOLS/safetensors_make.py" make model.safetensors w:F32:4:1
mkdir -p in/blobs/0 in/metadata
mv model.safetensors in
printf 'state' > 'in/blobs/0/%2E.%2Frng'
: > in/blobs/0/nothing
printf '{"epoch":3,"lr":0.5}' > in/metadata/0.json
breakwater import --run r --step 1 --allow-node-local --with-blobs in; echo "exit $?"
breakwater show r --metadata | sed -n '/^blobs/,/^objects/p'
breakwater export r --to out --with-blobs; echo "exit $?"
diff -r in/blobs out/blobs && diff -r in/metadata out/metadata && echo same
breakwater import --run r --step 2 --job import --allow-node-local --with-blobs out; echo "exit $?"
breakwater diff r 1 2
