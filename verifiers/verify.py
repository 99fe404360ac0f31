#!/usr/bin/env python3
"""Verify signed provenance DAGs without provstream.

    python3 verify.py prov.dags.jsonl jwks.json

The first file holds records of prov.dags, one JSON object a line (topic,
partition, offset, key, headers, value; or the output of kcat -J); the second
the public keys to trust.
Exit status: 0 all hold, 1 one does not, 2 could not run.
Needs: pip install cryptography rfc8785
"""
import base64
import hashlib
import json
import sys

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SIGNED = ("nodes", "edges", "id", "runId", "tenantId", "createdAt", "flowRef")  # version is not signed
REQUIRED = {"nodes", "edges", "id", "runId", "tenantId", "createdAt", "version", "signature"}


class Bad(Exception):
    pass


def need(condition, reason):
    if not condition:
        raise Bad(reason)


def strict(pairs):
    need(len({name for name, _ in pairs}) == len(pairs), "a member name is repeated")
    return dict(pairs)


def b64(text):
    raw = base64.b64decode(text, validate=True)
    need(base64.b64encode(raw).decode() == text, "base64 is not canonical")
    return raw


def load_keys(path):
    keys = []
    for jwk in json.load(open(path))["keys"]:
        x = base64.urlsafe_b64decode(jwk["x"] + "=")
        thumb = hashlib.sha256(b'{"crv":"Ed25519","kty":"OKP","x":"%s"}' % jwk["x"].encode()).digest()
        kid = base64.urlsafe_b64encode(thumb).decode().rstrip("=")
        need(jwk["crv"] == "Ed25519" and jwk.get("kid", kid) == kid, "key id is not the thumbprint")
        keys.append({**jwk, "kid": kid, "raw": x, "public": Ed25519PublicKey.from_public_bytes(x)})
    return keys


def valid_at(key, origin, index):
    """Does the key's life, counted in log indices, take in this one?"""
    end = key.get("to", {}).get(origin, 0 if key.get("status") == "compromised" else index + 1)
    return key.get("from", {}).get(origin, 0) <= index < end


def check(key, signature, message, what):
    try:
        key["public"].verify(signature, message)
    except InvalidSignature:
        raise Bad(f"{what}: not the signature of key {key['kid']} over this content") from None


def open_checkpoint(note, keys):
    """C2SP signed note: origin, size, root; signature lines by the log key."""
    text, lines = note.split("\n\n", 1)
    text += "\n"
    origin, size, root = text.splitlines()
    need(text == f"{origin}\n{int(size)}\n{root}\n", "checkpoint: malformed")
    for line in lines.splitlines():
        dash, name, blob = line.split(" ")
        need(dash == "—", "checkpoint: malformed signature line")
        for key in keys:
            key_hash = hashlib.sha256(origin.encode() + b"\n\x01" + key["raw"]).digest()[:4]
            if key.get("use") == "log" and name == origin and b64(blob)[:4] == key_hash:
                check(key, b64(blob)[4:], text.encode(), "checkpoint")
                need(valid_at(key, origin, int(size) - 1), f"checkpoint: key {key['kid']} was not valid")
                return origin, int(size), b64(root)
    raise Bad("checkpoint: signed by no pinned log key")


def root_of(leaf, index, size, path):
    """RFC 9162 section 2.1.3.2."""
    need(index < size, "proof: index is outside the log")
    fn, sn, r = index, size - 1, leaf
    for p in path:
        need(sn > 0, "proof: too many hashes")
        if fn & 1 or fn == sn:
            r = hashlib.sha256(b"\x01" + p + r).digest()
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = hashlib.sha256(b"\x01" + r + p).digest()
        fn, sn = fn >> 1, sn >> 1
    need(sn == 0, "proof: too few hashes")
    return r


def check_proof(proof, unsigned, keys):
    head, note = proof.split("\n\n", 1)
    _, index, *path = head.split("\n")
    index = index.removeprefix("index ")
    need(head == "\n".join([f"c2sp.org/tlog-proof@v1\nindex {int(index)}", *path]), "proof: malformed")
    origin, size, root = open_checkpoint(note, keys)
    leaf, index = hashlib.sha256(b"\x00" + unsigned).digest(), int(index)
    need(root_of(leaf, index, size, [b64(p) for p in path]) == root, "proof: does not lead to the signed root")
    return origin, index, size


def check_graph(dag):
    ids = [n["id"] for n in dag["nodes"]]
    need(len(set(ids)) == len(ids), "graph: a node id is repeated")
    causes = {i: [] for i in ids}
    for e in dag["edges"]:
        need(e["from"] in causes and e["to"] in causes, f"graph: an edge ends nowhere: {e['from']} -> {e['to']}")
        causes[e["from"]].append(e["to"])
    left = {i: 0 for i in ids}  # take away what nothing depends on, until nothing is left
    for targets in causes.values():
        for t in targets:
            left[t] += 1
    free = [i for i in ids if left[i] == 0]
    for i in free:
        for t in causes[i]:
            left[t] -= 1
            if left[t] == 0:
                free.append(t)
    need(len(free) == len(ids), "graph: it has a cycle")


def check_record(record, keys):
    if "payload" in record:  # kcat -J
        flat = record["headers"]
        record = {**record, "value": record["payload"], "headers": dict(zip(flat[::2], flat[1::2]))}
    value = record["value"].encode()
    dag = json.loads(value, object_pairs_hook=strict)
    need(rfc8785.dumps(dag) == value, "not the RFC 8785 text of its content")
    need(set(dag) - {"flowRef"} == REQUIRED, "members are missing or unknown")
    need(dag["version"] == "1.0.0", "version is not 1.0.0")
    signature = dag.pop("signature")
    need(set(signature) == {"algorithm", "keyId", "signedAt", "value"}, "signature: members are missing or unknown")
    need(signature["algorithm"] == "ed25519", "unknown algorithm")
    named = [k for k in keys if k["kid"] == signature["keyId"] and k.get("use", "sig") == "sig"]
    need(named, f"signed by key {signature['keyId']}, which is not pinned")
    bound = [k for k in named if k.get("tenant", dag["tenantId"]) == dag["tenantId"]]
    need(bound, f"key {signature['keyId']} is bound to another tenant")
    signed = rfc8785.dumps({name: dag[name] for name in SIGNED if name in dag})
    check(bound[0], b64(signature["value"]), signed, "DAG")
    check_graph(dag)
    origin, index, size = check_proof(record["headers"]["tlog-proof"], rfc8785.dumps(dag), keys)
    need(origin.endswith(f"/{record['topic']}/{record['partition']}"), f"proof: of another log, {origin}")
    need(all(valid_at(k, origin, index) for k in bound), f"key {signature['keyId']} was not valid at index {index}")
    need(record["headers"].get("ce_id", f"{dag['tenantId']}/{dag['id']}") == f"{dag['tenantId']}/{dag['id']}", "ce_id is another DAG's")
    return origin, index, size


def main(dags, jwks):
    keys, logs, count = load_keys(jwks), {}, 0
    for number, line in enumerate(open(dags, encoding="utf-8"), 1):
        try:
            origin, index, size = check_record(json.loads(line, object_pairs_hook=strict), keys)
            expected, _ = logs.get(origin, (index, 0))
            need(index == expected, f"leaf {index} stands where leaf {expected} belongs: dropped, repeated or moved")
            logs[origin] = index + 1, size
        except (Bad, ValueError, KeyError, TypeError, AttributeError) as e:
            print(f"{dags}:{number}: {type(e).__name__}: {e}" if not isinstance(e, Bad) else f"{dags}:{number}: {e}")
            return 1
        count += 1
    for origin, (end, size) in logs.items():
        if end != size:
            print(f"{origin}: a signed head covers {size} records, the last one here is {end - 1}: the end is missing")
            return 1
    print(f"{count} DAGs hold")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except (OSError, Bad, KeyError, ValueError) as e:
        print(f"verify.py: {e}", file=sys.stderr)
        sys.exit(2)
