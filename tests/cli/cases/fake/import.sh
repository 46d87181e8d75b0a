# SPDX-License-Identifier: Apache-2.0
# What is imported, and every way in which a file can be wrong.
exec 2>&1
export BREAKWATER_REMOTE=file:///x
make() { "$PYTHON" "$TOOLS/safetensors_make.py" "$@"; }
try() { breakwater import --run new --step 5 --allow-node-local "$@"; echo "exit $?"; }
make make a.safetensors w:F32:2x3:1 s:BF16::2 e:I64:0x4:3
make make b.safetensors v:U8:7:1
make make twice.safetensors w:U8:7:1
try a.safetensors
try missing.safetensors
try a.safetensors twice.safetensors
: > empty; try empty
printf 'abcdefghijklmnop' > text; try text
head() { make header h "$@"; try h; } # a file with this header
pair='{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
head '[]'
head '{"a":1}'
head "{\"a\":$pair,\"a\":$pair}" 8
head '{"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}' 8
head '{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}' 8
head "{\"a\":$pair}" 7
head "{\"a\":$pair}" 9
head '{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}' 8
head '{"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}}' 4
head '{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}' 16
head "{\"a\":$pair,\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[6,10]}}" 10
head '{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}' 1
head '{"__metadata__":{"a":1}}'
head "{\"\":$pair}" 8
head "{\"$(printf 'n%.0s' {1..8193})\":$pair}" 8
printf '\377\377\377\377\377\377\377\177{}' > h; try h
mkdir d; try d
cp a.safetensors b.safetensors d
map() { echo "{\"weight_map\":$1}" > d/model.safetensors.index.json; try d; } # a folder with this index
map '{"w":"a.safetensors","s":"a.safetensors","e":"a.safetensors","v":"b.safetensors"}'
map '{"w":"a.safetensors","s":"a.safetensors","v":"b.safetensors"}'
map '{"w":"a.safetensors","s":"a.safetensors","e":"a.safetensors","q":"a.safetensors"}'
map '{"w":"../a.safetensors"}'
map 7
rm d/model.safetensors.index.json; cp a.safetensors d/model.safetensors; try d
mkdir -p d/blobs/0; printf x > d/blobs/0/%2Ea; try d --with-blobs
mkdir d/blobs/1; try d --with-blobs; rmdir d/blobs/1
printf x > d/blobs/0/%zz; try d --with-blobs
try a.safetensors --with-blobs
breakwater import --run new --step 5 a.safetensors; echo "exit $?"
breakwater import --run gpt --step 5 a.safetensors --allow-node-local; echo "exit $?"
breakwater import --run gpt --step 1200 --job j a.safetensors --allow-node-local; echo "exit $?"
breakwater import --run gpt --step 1201 --job j a.safetensors --allow-node-local; echo "exit $?"
breakwater import --run lost --step 1 --job j a.safetensors --allow-node-local; echo "exit $?"
breakwater import --run new --step 5 --allow-node-local --json a.safetensors > out.json; echo "exit $?"
"$PYTHON" "$TOOLS/json_check.py" import < out.json
cat out.json
