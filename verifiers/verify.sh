#!/usr/bin/env bash
# Verify signed provenance DAGs without provstream.
#
#   bash verify.sh prov.dags.jsonl jwks.json
#
# The first file holds records of prov.dags, one JSON object a line; the second
# the public keys to trust. Exit status: 0 all hold, 1 one does not, 2 could not run.
# Needs bash, jq and OpenSSL 3. The bytes are checked as they stand: the
# signature and the version are cut out of the text, nothing is parsed and
# written again, so any other byte that changes breaks the signature.
set -euo pipefail
export LC_ALL=C
[ $# -eq 2 ] || { echo "usage: bash verify.sh prov.dags.jsonl jwks.json" >&2; exit 2; }
for tool in jq openssl; do command -v $tool >/dev/null || { echo "verify.sh: needs $tool" >&2; exit 2; }; done
[ -r "$1" ] && [ -r "$2" ] || { echo "verify.sh: cannot read $1 or $2" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
line=0
bad() { echo "$dags:$line: $*"; exit 1; }
hex() { od -An -v -tx1 | tr -d ' \n'; }
unhex() { printf "$(sed 's/../\\x&/g' <<<"$1")"; }
sha256() { openssl dgst -sha256 -binary | hex; }
unurl() { tr -- '-_' '+/' <<<"$1=" | base64 -d; }
dags=$1 jwks=$2

# pem X: an Ed25519 public key as the file that openssl takes.
pem() {
  printf -- '-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n' \
    "$( (unhex 302a300506032b6570032100; unurl "$1") | base64 -w0)"
}

# signed KEY-X SIGNATURE-HEX FILE
signed() {
  pem "$1" >"$tmp/key.pem"
  unhex "$2" >"$tmp/sig"
  openssl pkeyutl -verify -pubin -inkey "$tmp/key.pem" -rawin -in "$3" -sigfile "$tmp/sig" >/dev/null 2>&1
}

# strict BASE64: its bytes in hexadecimal, if it is canonical.
strict() {
  local h
  h=$(base64 -d <<<"$1" 2>/dev/null | hex) || return 1
  [ "$(unhex "$h" | base64 -w0)" = "$1" ] && echo "$h"
}

# keys FILTER: matching keys of the JWKS, as "x first-index end-index".
keys() {
  jq -r --arg o "${origin:-}" "$@" '.keys[] | select('"$filter"') |
    [.x, (.from[$o]? // 0), (.to[$o]? // if .status == "compromised" then 0 else 9007199254740991 end)] | @tsv' "$jwks"
}

# thumbprints are computed, not believed
while IFS=$'\t' read -r kid x; do
  want=$(printf '{"crv":"Ed25519","kty":"OKP","x":"%s"}' "$x" | openssl dgst -sha256 -binary | base64 -w0 | tr '+/' '-_' | tr -d =)
  [ "$kid" = "$want" ] || { echo "verify.sh: $jwks: key id $kid is not the thumbprint $want" >&2; exit 2; }
done < <(jq -r '.keys[] | [.kid, .x] | @tsv' "$jwks")

# checkpoint: opens the C2SP signed note in $tmp/note; sets origin, size, root.
checkpoint() {
  cmp -s "$tmp/note" "$tmp/opened" && return # all DAGs of a batch lead to one head
  sed '/^$/,$d' "$tmp/note" >"$tmp/text"
  [ "$(wc -l <"$tmp/text")" -eq 3 ] || bad "checkpoint: malformed"
  { read -r origin; read -r size; read -r root; } <"$tmp/text"
  local name blob h x from to
  while read -r _ name blob; do
    [ "$name" = "$origin" ] || continue
    h=$(strict "$blob") || bad "checkpoint: malformed signature line"
    while IFS=$'\t' read -r x from to; do
      [ "$( (printf '%s\n\001' "$origin"; unurl "$x") | sha256 | cut -c1-8)" = "${h:0:8}" ] || continue
      signed "$x" "${h:8}" "$tmp/text" || bad "checkpoint: not the signature of the log key over this head"
      (( from < size && size <= to )) || bad "checkpoint: the log key was not valid"
      root=$(strict "$root") || bad "checkpoint: malformed root"
      cp "$tmp/note" "$tmp/opened"
      return
    done < <(filter='.use == "log"' keys)
  done < <(sed '1,/^$/d' "$tmp/note")
  bad "checkpoint: signed by no pinned log key"
}

# inclusion LEAF: RFC 9162 section 2.1.3.2 over the hashes in $tmp/path.
inclusion() {
  local r=$1 fn=$index sn=$((size - 1)) p
  (( index < size )) || bad "proof: index is outside the log"
  while read -r p; do
    p=$(strict "$p") || bad "proof: malformed hash"
    (( sn > 0 )) || bad "proof: too many hashes"
    if (( fn & 1 || fn == sn )); then
      r=$(unhex "01$p$r" | sha256)
      while (( fn && !(fn & 1) )); do fn=$((fn >> 1)) sn=$((sn >> 1)); done
    else
      r=$(unhex "01$r$p" | sha256)
    fi
    fn=$((fn >> 1)) sn=$((sn >> 1))
  done <"$tmp/path"
  (( sn == 0 )) && [ "$r" = "$root" ] || bad "proof: does not lead to the signed root"
}

declare -A next heads
text='([^"\\]|\\.)*' # a JSON string between its quotation marks
signature=',"signature":\{"algorithm":"ed25519","keyId":"[A-Za-z0-9_-]{43}","signedAt":"[-0-9T:.]{23}Z","value":"[A-Za-z0-9+/]{86}=="\}'
while IFS= read -r record; do
  line=$((line + 1))
  jq -j .value <<<"$record" >"$tmp/value" 2>/dev/null || bad "not a record"
  sed -E 's/'"$signature"'(,"tenantId":"'"$text"'","version":"1\.0\.0"\})$/\1/' "$tmp/value" >"$tmp/unsigned"
  cmp -s "$tmp/value" "$tmp/unsigned" && bad "no signature member, or the version is not 1.0.0"
  sed -E 's/,"version":"1\.0\.0"\}$/}/' "$tmp/unsigned" >"$tmp/message"
  { read -r kid; read -r value; read -r tenant; read -r id; } < <(jq -r '.signature.keyId, .signature.value, .tenantId, .id' "$tmp/value")
  h=$(strict "$value") || bad "signature: base64 is not canonical"

  jq -j '.headers["tlog-proof"] // ""' <<<"$record" >"$tmp/proof"
  sed -n '/^$/,$p' "$tmp/proof" | sed 1d >"$tmp/note"
  sed '/^$/,$d;1,2d' "$tmp/proof" >"$tmp/path"
  { read -r first; read -r word index; } <"$tmp/proof" || bad "proof: missing or malformed"
  [[ "$first/$word" = c2sp.org/tlog-proof@v1/index && "$index" =~ ^(0|[1-9][0-9]*)$ ]] || bad "proof: missing or malformed"
  checkpoint

  found=0
  while IFS=$'\t' read -r x from to; do
    found=1
    signed "$x" "$h" "$tmp/message" || bad "signature: not that of key $kid over this content"
    (( from <= index && index < to )) || bad "key $kid was not valid at index $index"
  done < <(filter='(.use // "sig") == "sig" and .kid == $k and (.tenant // $t) == $t' keys --arg k "$kid" --arg t "$tenant")
  (( found )) || bad "signed by key $kid, which is not pinned for tenant $tenant"

  inclusion "$( (printf '\0'; cat "$tmp/unsigned") | sha256)"
  place=$(jq -r '"/\(.topic)/\(.partition)"' <<<"$record")
  [[ "$origin" = *"$place" ]] || bad "proof: of another log, $origin"
  [ "$(jq -r --arg id "$tenant/$id" '.headers.ce_id // $id' <<<"$record")" = "$tenant/$id" ] || bad "ce_id is another DAG's"
  [ "${next[$origin]:-$index}" -eq "$index" ] || bad "leaf $index stands where leaf ${next[$origin]} belongs: dropped, repeated or moved"
  next[$origin]=$((index + 1)) heads[$origin]=$size
done <"$dags"
for o in "${!next[@]}"; do
  [ "${next[$o]}" -eq "${heads[$o]}" ] || { echo "$o: a signed head covers ${heads[$o]} records, the last one here is $((next[$o] - 1)): the end is missing"; exit 1; }
done
echo "$line DAGs hold"
