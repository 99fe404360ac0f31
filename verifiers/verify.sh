#!/usr/bin/env bash
# Verify signed provenance DAGs without provstream.
#
#   bash verify.sh prov.dags.jsonl jwks.json
#
# The first file holds records of prov.dags, one JSON object a line (or the
# output of kcat -J); the second the public keys to trust. Exit status: 0 all hold, 1 one does not, 2 could not run.
# Needs bash, jq and OpenSSL 3. The bytes are checked as they stand: the
# signature and the version are cut out of the text, nothing is parsed and
# written again, so any other byte that changes breaks the signature.
set -euo pipefail
export LC_ALL=C
[ $# -eq 2 ] || { echo "usage: bash verify.sh prov.dags.jsonl jwks.json" >&2; exit 2; }
for tool in jq openssl; do command -v $tool >/dev/null || { echo "verify.sh: needs $tool" >&2; exit 2; }; done
[ -r "$1" ] && [ -r "$2" ] || { echo "verify.sh: cannot read $1 or $2" >&2; exit 2; }
dags=$1 jwks=$2 line=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad() { echo "$dags:$line: $*"; exit 1; }
sha256() { openssl dgst -sha256 -binary; }
unurl() { tr -- '-_' '+/' <<<"$1=" | base64 -d; }

# decode BASE64 BYTES: canonical base64 of that many bytes, decoded.
b='[A-Za-z0-9+/]' two='[AEIMQUYcgkosw048]=' four='[AQgw]=='
decode() {
  local -A form=([32]="^$b{42}$two\$" [64]="^$b{85}$four\$" [68]="^$b{90}$two\$")
  [[ "$1" =~ ${form[$2]} ]] && base64 -d <<<"$1"
}

# pem X: an Ed25519 public key as the file that openssl takes.
pem() {
  [ -f "$tmp/$1.pem" ] || printf -- '-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n' \
    "$( (printf '\60\52\60\5\6\3\53\145\160\3\41\0'; unurl "$1") | base64 -w0)" >"$tmp/$1.pem"
}

# signed KEY-X FILE: is $tmp/sig the signature of the key over the file?
signed() {
  pem "$1"
  openssl pkeyutl -verify -pubin -inkey "$tmp/$1.pem" -rawin -in "$2" -sigfile "$tmp/sig" >/dev/null 2>&1
}

# keys CONDITION: matching keys of the JWKS, as "x first-index end-index".
keys() {
  local condition=$1
  shift
  jq -r --arg o "$origin" "$@" ".keys[] | select($condition) |"'
    [.x, (.from[$o]? // 0), (.to[$o]? // if .status == "compromised" then 0 else 9007199254740991 end)] | @tsv' "$jwks"
}

# Key ids are computed, not believed.
while IFS=$'\t' read -r kid x; do
  want=$(printf '{"crv":"Ed25519","kty":"OKP","x":"%s"}' "$x" | sha256 | base64 -w0 | tr '+/' '-_' | tr -d =)
  [ "$kid" = "$want" ] || { echo "verify.sh: $jwks: key id $kid is not the thumbprint $want" >&2; exit 2; }
done < <(jq -r '.keys[] | [.kid, .x] | @tsv' "$jwks")

# checkpoint: opens the C2SP signed note in $tmp/note; sets origin and size,
# writes the root to $tmp/root.
checkpoint() {
  cmp -s "$tmp/note" "$tmp/opened" && return # all DAGs of a batch lead to one head
  sed '/^$/,$d' "$tmp/note" >"$tmp/text"
  [ "$(wc -l <"$tmp/text")" -eq 3 ] || bad "checkpoint: malformed"
  { read -r origin; read -r size; read -r root; } <"$tmp/text"
  [[ "$size" =~ ^(0|[1-9][0-9]{0,14})$ ]] || bad "checkpoint: malformed"
  decode "$root" 32 >"$tmp/root" || bad "checkpoint: malformed root"
  local name blob x from to
  while read -r _ name blob; do
    [ "$name" = "$origin" ] || continue
    decode "$blob" 68 >"$tmp/blob" || bad "checkpoint: malformed signature line"
    tail -c 64 "$tmp/blob" >"$tmp/sig"
    while IFS=$'\t' read -r x from to; do
      (printf '%s\n\001' "$origin"; unurl "$x") | sha256 | head -c 4 | cmp -s - <(head -c 4 "$tmp/blob") || continue
      signed "$x" "$tmp/text" || bad "checkpoint: not the signature of the log key over this head"
      ((from < size && size <= to)) || bad "checkpoint: the log key was not valid"
      cp "$tmp/note" "$tmp/opened"
      return
    done < <(keys '.use == "log"')
  done < <(sed '1,/^$/d' "$tmp/note")
  bad "checkpoint: signed by no pinned log key"
}

# inclusion: RFC 9162 section 2.1.3.2, from the leaf hash in $tmp/r over the
# hashes in $tmp/path to the root.
inclusion() {
  local fn=$index sn=$((size - 1)) p
  ((index < size)) || bad "proof: index is outside the log"
  while read -r p; do
    decode "$p" 32 >"$tmp/p" || bad "proof: malformed hash"
    ((sn > 0)) || bad "proof: too many hashes"
    if ((fn & 1 || fn == sn)); then
      (printf '\1'; cat "$tmp/p" "$tmp/r") | sha256 >"$tmp/next"
      while ((fn && !(fn & 1))); do fn=$((fn >> 1)) sn=$((sn >> 1)); done
    else
      (printf '\1'; cat "$tmp/r" "$tmp/p") | sha256 >"$tmp/next"
    fi
    mv "$tmp/next" "$tmp/r"
    fn=$((fn >> 1)) sn=$((sn >> 1))
  done <"$tmp/path"
  ((sn == 0)) && cmp -s "$tmp/r" "$tmp/root" || bad "proof: does not lead to the signed root"
}

declare -A next heads
origin=
text='([^"\\]|\\.)*' # a JSON string between its quotation marks
signature=',"signature":\{"algorithm":"ed25519","keyId":"[A-Za-z0-9_-]{43}","signedAt":"[-0-9T:.]{23}Z","value":"[A-Za-z0-9+/]{86}=="\}'
kcat='.value = .payload | .headers |= (. as $h | [range(0; length; 2) | {($h[.]): $h[. + 1]}] | add)'
while IFS= read -r record; do
  line=$((line + 1))
  [[ "$record" = *'"payload":'* ]] && # kcat -J
    record=$(jq -c "$kcat" <<<"$record")
  jq -j .value <<<"$record" >"$tmp/value" 2>/dev/null || bad "not a record"
  sed -E 's/'"$signature"'(,"tenantId":"'"$text"'","version":"1\.0\.0"\})$/\1/' "$tmp/value" >"$tmp/unsigned"
  cmp -s "$tmp/value" "$tmp/unsigned" && bad "no signature member, or the version is not 1.0.0"
  sed -E 's/,"version":"1\.0\.0"\}$/}/' "$tmp/unsigned" >"$tmp/message"
  { read -r kid; read -r value; read -r tenant; read -r id; read -r place; read -r ce; } < <(jq -r '(.value | fromjson) as $d |
    $d.signature.keyId, $d.signature.value, $d.tenantId, $d.id, "/\(.topic)/\(.partition)", (.headers.ce_id // "\($d.tenantId)/\($d.id)")' <<<"$record") || true

  jq -j '.headers["tlog-proof"] // ""' <<<"$record" >"$tmp/proof"
  sed '1,/^$/d' "$tmp/proof" >"$tmp/note"
  sed '/^$/,$d;1,2d' "$tmp/proof" >"$tmp/path"
  { read -r first; read -r word index; } <"$tmp/proof" || bad "proof: missing or malformed"
  [[ "$first/$word" = c2sp.org/tlog-proof@v1/index && "$index" =~ ^(0|[1-9][0-9]{0,14})$ ]] || bad "proof: missing or malformed"
  checkpoint

  decode "$value" 64 >"$tmp/dag.sig" || bad "signature: base64 is not canonical"
  found=0
  while IFS=$'\t' read -r x from to; do
    found=1
    cp "$tmp/dag.sig" "$tmp/sig"
    signed "$x" "$tmp/message" || bad "signature: not that of key $kid over this content"
    ((from <= index && index < to)) || bad "key $kid was not valid at index $index"
  done < <(keys '(.use // "sig") == "sig" and .kid == $k and (.tenant // $t) == $t' --arg k "$kid" --arg t "$tenant")
  ((found)) || bad "signed by key $kid, which is not pinned for tenant $tenant"

  (printf '\0'; cat "$tmp/unsigned") | sha256 >"$tmp/r"
  inclusion
  [[ "$origin" = *"$place" ]] || bad "proof: of another log, $origin"
  [ "$ce" = "$tenant/$id" ] || bad "ce_id is another DAG's"
  [ "${next[$origin]:-$index}" -eq "$index" ] || bad "leaf $index stands where leaf ${next[$origin]} belongs: dropped, repeated or moved"
  next[$origin]=$((index + 1)) heads[$origin]=$size
done <"$dags"
for o in "${!next[@]}"; do
  [ "${next[$o]}" -eq "${heads[$o]}" ] || { echo "$o: a signed head covers ${heads[$o]} records, the last one here is $((next[$o] - 1)): the end is missing"; exit 1; }
done
echo "$line DAGs hold"
