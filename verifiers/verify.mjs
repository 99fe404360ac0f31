// Verify signed provenance DAGs without provstream.
//
//   node verify.mjs prov.dags.jsonl jwks.json
//
// The first file holds records of prov.dags, one JSON object a line (topic,
// partition, offset, key, headers, value; or the output of kcat -J); the second
// the public keys to trust.
// Exit status: 0 all hold, 1 one does not, 2 could not run.
// Needs Node 20 or later and nothing else.
import { createReadStream, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { webcrypto } from "node:crypto";
import { fileURLToPath } from "node:url";

const { subtle } = webcrypto;
const utf8 = new TextEncoder();
const SIGNED = ["nodes", "edges", "id", "runId", "tenantId", "createdAt", "flowRef"]; // version is not signed
const REQUIRED = "createdAt,edges,id,nodes,runId,signature,tenantId,version";

class Bad extends Error {}
function need(condition, reason) {
  if (!condition) throw new Bad(reason);
}

// RFC 8785: JSON.stringify writes strings and numbers as it wants them, and the
// default order of sort() is the order of member names.
function canonical(v) {
  if (Array.isArray(v)) return "[" + v.map(canonical).join(",") + "]";
  if (v === null || typeof v !== "object") {
    need(typeof v !== "string" || v.isWellFormed(), "a lone surrogate");
    return JSON.stringify(v);
  }
  return "{" + Object.keys(v).sort().map((k) => canonical(k) + ":" + canonical(v[k])).join(",") + "}";
}

function b64(text) {
  const raw = Buffer.from(text, "base64");
  need(raw.toString("base64") === text, "base64 is not canonical");
  return raw;
}
const sha256 = async (...parts) => Buffer.from(await subtle.digest("SHA-256", Buffer.concat(parts)));

async function loadKeys(path) {
  const keys = [];
  for (const jwk of JSON.parse(readFileSync(path, "utf8")).keys) {
    const thumb = await sha256(utf8.encode(`{"crv":"Ed25519","kty":"OKP","x":"${jwk.x}"}`));
    const kid = thumb.toString("base64url");
    need(jwk.crv === "Ed25519" && (jwk.kid ?? kid) === kid, "key id is not the thumbprint");
    const key = await subtle.importKey("jwk", { kty: "OKP", crv: "Ed25519", x: jwk.x }, "Ed25519", false, ["verify"]);
    keys.push({ ...jwk, kid, key, raw: Buffer.from(jwk.x, "base64url") });
  }
  return keys;
}

// Does the key's life, counted in log indices, take in this one?
function validAt(key, origin, index) {
  const end = key.to?.[origin] ?? (key.status === "compromised" ? 0 : Infinity);
  return (key.from?.[origin] ?? 0) <= index && index < end;
}

async function check(key, signature, message, what) {
  need(await subtle.verify("Ed25519", key.key, signature, message), `${what}: not the signature of key ${key.kid} over this content`);
}

// C2SP signed note: origin, size, root; signature lines by the log key.
async function openCheckpoint(note, keys) {
  const at = note.indexOf("\n\n");
  const text = note.slice(0, at + 1);
  const [origin, size, root] = text.split("\n");
  need(at > 0 && text === `${origin}\n${Number(size)}\n${root}\n`, "checkpoint: malformed");
  for (const line of note.slice(at + 2).split("\n").filter(Boolean)) {
    const [dash, name, blob] = line.split(" ");
    need(dash === "—", "checkpoint: malformed signature line");
    for (const key of keys.filter((k) => k.use === "log" && name === origin)) {
      const hash = await sha256(utf8.encode(origin + "\n\x01"), key.raw);
      if (!b64(blob).subarray(0, 4).equals(hash.subarray(0, 4))) continue;
      await check(key, b64(blob).subarray(4), utf8.encode(text), "checkpoint");
      need(validAt(key, origin, Number(size) - 1), `checkpoint: key ${key.kid} was not valid`);
      return { origin, size: Number(size), root: b64(root) };
    }
  }
  throw new Bad("checkpoint: signed by no pinned log key");
}

// RFC 9162 section 2.1.3.2; halves by division, for logs beyond 2^32.
async function rootOf(leaf, index, size, path) {
  need(index < size, "proof: index is outside the log");
  const half = (n) => Math.floor(n / 2);
  let fn = index, sn = size - 1, r = leaf;
  for (const p of path) {
    need(sn > 0, "proof: too many hashes");
    if (fn % 2 || fn === sn) {
      r = await sha256(Buffer.of(1), p, r);
      while (fn % 2 === 0 && fn > 0) [fn, sn] = [half(fn), half(sn)];
    } else {
      r = await sha256(Buffer.of(1), r, p);
    }
    [fn, sn] = [half(fn), half(sn)];
  }
  need(sn === 0, "proof: too few hashes");
  return r;
}

async function checkProof(proof, unsigned, keys) {
  const at = proof.indexOf("\n\n");
  const [first, indexLine, ...path] = proof.slice(0, at).split("\n");
  const index = Number(indexLine?.replace(/^index /, ""));
  need(at > 0 && first === "c2sp.org/tlog-proof@v1" && indexLine === `index ${index}`, "proof: malformed");
  const { origin, size, root } = await openCheckpoint(proof.slice(at + 2), keys);
  const leaf = await sha256(Buffer.of(0), utf8.encode(unsigned));
  need((await rootOf(leaf, index, size, path.map(b64))).equals(root), "proof: does not lead to the signed root");
  return { origin, index, size };
}

function checkGraph(dag) {
  const effects = new Map(dag.nodes.map((n) => [n.id, 0])); // how much depends on it
  need(effects.size === dag.nodes.length, "graph: a node id is repeated");
  const causes = new Map(dag.nodes.map((n) => [n.id, []]));
  for (const e of dag.edges) {
    need(effects.has(e.from) && effects.has(e.to), `graph: an edge ends nowhere: ${e.from} -> ${e.to}`);
    causes.get(e.from).push(e.to);
    effects.set(e.to, effects.get(e.to) + 1);
  }
  const free = [...effects.keys()].filter((id) => effects.get(id) === 0);
  for (const id of free) {
    for (const to of causes.get(id)) {
      effects.set(to, effects.get(to) - 1);
      if (effects.get(to) === 0) free.push(to);
    }
  }
  need(free.length === dag.nodes.length, "graph: it has a cycle");
}

async function checkRecord(record, keys) {
  if ("payload" in record) { // kcat -J
    const flat = record.headers, pairs = flat.flatMap((name, i) => (i % 2 ? [] : [[name, flat[i + 1]]]));
    record = { ...record, value: record.payload, headers: Object.fromEntries(pairs) };
  }
  const dag = JSON.parse(record.value); // a repeated name shows in the next line
  need(canonical(dag) === record.value, "not the RFC 8785 text of its content");
  need(Object.keys(dag).filter((k) => k !== "flowRef").sort().join() === REQUIRED, "members are missing or unknown");
  need(dag.version === "1.0.0", "version is not 1.0.0");
  const { signature, ...unsigned } = dag;
  need(Object.keys(signature).sort().join() === "algorithm,keyId,signedAt,value", "signature: members are missing or unknown");
  need(signature.algorithm === "ed25519", "unknown algorithm");
  const named = keys.filter((k) => k.kid === signature.keyId && (k.use ?? "sig") === "sig");
  need(named.length, `signed by key ${signature.keyId}, which is not pinned`);
  const bound = named.filter((k) => (k.tenant ?? dag.tenantId) === dag.tenantId);
  need(bound.length, `key ${signature.keyId} is bound to another tenant`);
  const signed = Object.fromEntries(SIGNED.filter((m) => m in dag).map((m) => [m, dag[m]]));
  await check(bound[0], b64(signature.value), utf8.encode(canonical(signed)), "DAG");
  checkGraph(dag);
  const place = await checkProof(record.headers["tlog-proof"], canonical(unsigned), keys);
  need(place.origin.endsWith(`/${record.topic}/${record.partition}`), `proof: of another log, ${place.origin}`);
  need(bound.every((k) => validAt(k, place.origin, place.index)), `key ${signature.keyId} was not valid at index ${place.index}`);
  need((record.headers.ce_id ?? `${dag.tenantId}/${dag.id}`) === `${dag.tenantId}/${dag.id}`, "ce_id is another DAG's");
  return place;
}

export async function main(dags, jwks) {
  const keys = await loadKeys(jwks);
  const logs = new Map();
  let number = 0;
  for await (const line of createInterface({ input: createReadStream(dags, "utf8"), crlfDelay: Infinity })) {
    number++;
    try {
      const { origin, index, size } = await checkRecord(JSON.parse(line), keys);
      const expected = logs.get(origin)?.next ?? index;
      need(index === expected, `leaf ${index} stands where leaf ${expected} belongs: dropped, repeated or moved`);
      logs.set(origin, { next: index + 1, size });
    } catch (e) {
      console.log(`${dags}:${number}: ${e.message}`);
      return 1;
    }
  }
  for (const [origin, { next, size }] of logs) {
    if (next === size) continue;
    console.log(`${origin}: a signed head covers ${size} records, the last one here is ${next - 1}: the end is missing`);
    return 1;
  }
  console.log(`${number} DAGs hold`);
  return 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [dags, jwks] = process.argv.slice(2);
  if (!dags || !jwks) {
    console.error("usage: node verify.mjs prov.dags.jsonl jwks.json");
    process.exit(2);
  }
  process.exit(await main(dags, jwks).catch((e) => (console.error(`verify.mjs: ${e.message}`), 2)));
}
