"""A second reader of hook records, which shares nothing with the Go one.

It reads a file of JSON lines, each with a record and what becomes of it, and
writes the file again with what becomes of it by its own reading of the rules:

    python3 second_reader.py second-reader.jsonl

Schemas are judged by the jsonschema package of Python, JSON is parsed by a
parser of its own (which keeps the first of two members of a name, as the rules
of rejected steps want it), numbers are printed from Python's repr. A test of the
Go package holds its reader to the file.
"""
import base64
import json
import os
import re
import sys

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from second_json import Bad, NotJSON, clamp, instant, is_uuid, jcs, parse, sha256

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'acs', 'schema', 'files')
BASE = 'https://genai-security-project.github.io/agent-control-standard/schema/v0.1.0/'
docs = {}
for d, _, fs in os.walk(ROOT):
    for f in fs:
        if f.endswith('.json'):
            j = json.load(open(os.path.join(d, f)))
            docs[j['$id']] = j
registry = Registry().with_resources([(k, Resource.from_contents(v)) for k, v in docs.items()])
validators = {}
formats = FormatChecker(formats=[])
formats.checks('uuid')(lambda v: not isinstance(v, str) or is_uuid(v))
formats.checks('date-time')(lambda v: not isinstance(v, str) or instant(v) is not None)

def validator(ref):
    if ref not in validators:
        validators[ref] = Draft202012Validator({'$ref': BASE + ref}, registry=registry, format_checker=formats)
    return validators[ref]

def token(t):
    return str(t) if isinstance(t, int) else clamp(t).replace('~', '~0').replace('/', '~1')

def leaves(errs):
    """The failing leaf assertions, without those beside a failing type."""
    out = []

    def visit(e):
        kw = e.validator
        if e.context and kw in ('allOf', '$ref', 'if', 'then'):
            for c in e.context:
                visit(c)
            return
        out.append((''.join(('/' + token(t) for t in e.absolute_path)), kw, e))
    for e in errs:
        visit(e)
    types = {(p, id(e.schema)) for p, k, e in out if k == 'type'}
    return [(p, k) for p, k, e in out if k == 'type' or (p, id(e.schema)) not in types]

def told(ref, v):
    """The failing assertion that is told: (pointer, keyword), or None."""
    errs = list(validator(ref).iter_errors(v))
    if not errs:
        return None
    ls = leaves(errs)
    return min(ls, key=lambda x: (x[0].encode(), x[1].encode()))
STEPS = 'sessionStart agentTrigger turnStart userMessage agentResponse knowledgeRetrieval memoryContextRetrieval memoryStore toolCallRequest toolCallResult preCompact postCompact subagentStart subagentStop skillRegister skillLoad skillUnload turnEnd sessionEnd'.split()

def kebab(s):
    return re.sub('([A-Z])', lambda m: '-' + m[1].lower(), s)
PAYLOADS = {'steps/' + s: 'hooks/' + kebab(s) + '.json' for s in STEPS}
PAYLOADS.update({'agbom/snapshot': 'hooks/agbom-snapshot.json', 'agbom/changed': 'hooks/agbom-changed.json', 'system/ping': 'hooks/system-ping.json', 'handshake/hello': 'handshake.json#/$defs/ClientHello'})
STRICT_PAYLOADS = {m: r[:-5] + '.acs-provenance.json' for m, r in PAYLOADS.items() if BASE + r[:-5] + '.acs-provenance.json' in docs}

def get(v, *ks):
    for k in ks:
        if not isinstance(v, dict) or k not in v:
            return None
        v = v[k]
    return v


class Reader:
    """Reads records under one configuration."""

    def __init__(self, config):
        self.config = config

    def tenant(self, topic, named):
        mapped = self.config['map'].get(topic)
        if mapped is not None and named and (named != mapped):
            return None
        return named or mapped or self.config['default']

    def route(self, rec):
        h = [v for k, v in rec['headers'] if k == 'acs-tenant-id']
        named = h[-1] if h else ''
        t = self.tenant(rec['topic'], clamp(named))
        if t is None:
            return ('tenant_mismatch', None, None)
        if not named and self.config['map'] and (rec['topic'] not in self.config['map']):
            return ('unroutable', None, None)
        h = [v for k, v in rec['headers'] if k == 'acs-session-id']
        session = (h[-1] if h else '') or rec['key']
        if not is_uuid(session):
            return ('unroutable', None, None)
        return (None, t, session)

    def read(self, rec):
        b = rec['value']
        out = {'steps': [], 'dropped': 0, 'dead': None}
        if len(b) > self.config['max']:
            out['dead'] = ('oversize', '', '', None)
            return out
        try:
            v, p = parse(b)
        except NotJSON:
            out['dead'] = ('not_json', '', '', None)
            return out
        decision = rec['topic'] == 'acs.decisions'
        if isinstance(v, list):
            if not v:
                out['dead'] = ('envelope', '', '', None)
                return out
            fails = []
            for i, (a, z, strict, x) in enumerate(p.elements):
                d = self.one(rec, x, strict, b[a:z], i, out, decision)
                if d:
                    fails.append((i, d))
            if fails:
                out['dead'] = fails[0][1] + (','.join((str(i) for i, _ in fails)),)
            return out
        d = self.one(rec, v, p.strict, b, -1, out, decision)
        if d:
            out['dead'] = d + (None,)
        return out

    def one(self, rec, v, strict, raw, i, out, decision):
        d = self.judge(rec, v, strict, raw, i, out, decision)
        if d and d[0] in ('not_strict', 'version', 'envelope', 'payload', 'provenance', 'unknown_method'):
            step = {}
            if decision:
                k, t, session = self.route(rec)
                request_id = get(v, 'result', 'request_id')
                if k:
                    return d
                step['type'] = 'decision'
            else:
                session = get(v, 'params', 'metadata', 'session_id')
                request_id = get(v, 'params', 'request_id')
                t = get(v, 'params', 'tenant_id')
                if isinstance(get(v, 'params'), dict) and 'tenant_id' in v['params'] and (not isinstance(t, str) or isinstance(t, Bad)):
                    return d
                t = self.tenant(rec['topic'], clamp(t or ''))
                if t is None:
                    return d
                step['type'] = 'step'
                for n, x in (('method', get(v, 'method')), ('agent_id', get(v, 'params', 'metadata', 'agent_id')), ('turn_id', get(v, 'params', 'metadata', 'turn_id'))):
                    if isinstance(x, str) and (not isinstance(x, Bad)) and x:
                        step[n] = clamp(x)
            if not is_uuid(session) or not is_uuid(request_id):
                return d
            rh = sha256(raw)
            step.update(session=session, step_id=request_id, tenant=t, rejected=d[0], event_time=rec['recorded'], request_hash=rh, content_hash=rh)
            self.emit(rec, step, i, out)
        return d

    def emit(self, rec, step, i, out):
        step.update(recorded_at=rec['recorded'], topic=rec['topic'], partition=rec['partition'], offset=rec['offset'])
        if i >= 0:
            step['index'] = i
        out['steps'].append(step)

    def judge(self, rec, v, strict, raw, i, out, decision):
        if not strict:
            return ('not_strict', '', '')
        version = get(v, 'result' if decision else 'params', 'acs_version')
        if isinstance(version, str) and re.fullmatch('[0-9]+\\.[0-9]+\\.[0-9]+', version) and (int(version.split('.')[0]) != 0):
            return ('version', '/result/acs_version' if decision else '/params/acs_version', '')
        t = told('response-envelope.json' if decision else 'request-envelope.json', v)
        if t:
            return ('envelope',) + t
        if decision:
            r = get(v, 'result')
            if r is not None and 'negotiated_version' in r:
                out['dropped'] += 1
                return
            if r is not None and r['decision'] == 'allow' and isinstance(get(r, 'payload', 'status'), str) and r['payload']['status']:
                out['dropped'] += 1
                return
            k, t, session = self.route(rec)
            if k:
                return (k, '', '')
            step = {'type': 'decision', 'tenant': t, 'session': session, 'event_time': rec['recorded'], 'id': self.json_id(v['id'])}
            body = v.get('error', r)
            h = sha256(jcs(body).encode())
            step['request_hash'] = step['content_hash'] = h
            if 'error' in v:
                step['error_response'] = True
                step['error_code'] = v['error']['code']
            else:
                self.put(step, step_id=r['request_id'], decision=r['decision'], evaluator=get(r, 'metadata', 'evaluator'), decision_chain_hash=r.get('chain_hash'))
                self.put_list(step, reason_codes=r.get('reason_codes'), cited=r.get('cited_provenance_ids'))
                extension = get(r, 'ask_details', 'intent_extension', 'provenance')
                if extension is not None:
                    step['provenance'] = [self.provenance_object(extension)]
            self.emit(rec, step, i, out)
            return
        m = v['method']
        p = v['params']
        payload = p['payload']
        metadata = p['metadata']
        if m in PAYLOADS:
            t = told(PAYLOADS[m], payload)
            if t:
                return ('payload', '/params/payload' + t[0], t[1])
        if m == 'system/ping':
            out['dropped'] += 1
            return
        if self.config['reject'] and m.startswith('steps/') and (m not in PAYLOADS):
            return ('unknown_method', '/method', '')
        tenant = self.tenant(rec['topic'], clamp(p.get('tenant_id') or ''))
        if tenant is None:
            return ('tenant_mismatch', '/params/tenant_id', '')
        if self.config['strict'] and m in STRICT_PAYLOADS:
            t = told(STRICT_PAYLOADS[m], payload)
            if t:
                return ('provenance', '/params/payload' + t[0], t[1])
        event = instant(p['timestamp'])
        event = max(-62167219200000, min(253402300799999, event))
        step = {'type': 'step', 'tenant': tenant, 'session': metadata['session_id'], 'step_id': p['request_id'], 'id': self.json_id(v['id']), 'event_time': event, 'request_hash': sha256(jcs(p).encode()), 'content_hash': sha256(jcs(payload).encode())}
        if abs(event - rec['recorded']) > 300000:
            step['skewed'] = True
        self.put(step, method=m, agent_id=metadata['agent_id'], agent_name=metadata.get('agent_name'), turn_id=metadata.get('turn_id'), parent_turn_id=metadata.get('parent_turn_id'), environment=metadata.get('environment'), platform=metadata.get('platform'), platform_version=metadata.get('platform_version'), user_id=get(metadata, 'user_context', 'user_id'), chain_hash=get(metadata, 'session_state', 'chain_hash'), signature_key_id=get(p, 'signature', 'key_id'), signature_algorithm=get(p, 'signature', 'algorithm'))
        g = lambda *k: get(payload, *k)
        name = m[6:] if m.startswith('steps/') else m
        provenance = []
        missing = 0

        def data(x):
            nonlocal missing
            if 'provenance' in x:
                provenance.append(x['provenance'])
            else:
                missing += 1

        def at(x):
            if x is not None:
                provenance.append(x)
        if name in ('userMessage', 'agentResponse'):
            [data(x) for x in payload['content']]
        elif name == 'knowledgeRetrieval':
            data(payload['query'])
            [data(x) for x in payload['results']]
        elif name == 'memoryContextRetrieval':
            at(g('query', 'provenance'))
            [data(x) for x in payload['results']]
        elif name == 'memoryStore':
            data(payload['content'])
        elif name == 'toolCallRequest':
            self.put(step, tool=payload['tool']['name'], capability=g('capability'))
            for k in sorted(payload['arguments'], key=lambda k: k.encode('utf-16-be')):
                data(payload['arguments'][k])
        elif name == 'toolCallResult':
            self.put(step, tool=payload['tool']['name'], exit_status=payload['exit_status'], request_id_ref=g('request_id_ref'))
            [data(x) for x in payload['outputs']]
        elif name in ('postCompact', 'subagentStop', 'turnEnd'):
            at(g('summary', 'provenance'))
        elif name in ('sessionStart', 'agentTrigger'):
            at(g('intent', 'parser_provenance'))
        elif name == 'subagentStart':
            at(g('subagent_intent', 'parser_provenance'))
        elif name == 'skillRegister':
            at(g('registration_provenance'))
        elif name in ('agbom/snapshot', 'agbom/changed'):
            for lst in [g('components'), g('agbom', 'components')] + ([g('added'), g('changed')] if name == 'agbom/changed' else []):
                for x in lst or []:
                    at(x.get('registration_provenance'))
        if name == 'turnStart':
            self.put(step, payload_turn_id=g('turn_id'), payload_parent_turn_id=g('parent_turn_id'), triggered_by=g('triggered_by'))
        if name == 'turnEnd':
            self.put(step, payload_turn_id=g('turn_id'), outcome=g('outcome'))
            self.put_number(step, step_count=g('step_count'), tool_call_count=g('tool_call_count'))
        if name in ('turnEnd', 'subagentStop') and 'summary' in payload:
            step['has_summary'] = True
        if name == 'subagentStop':
            self.put(step, outcome=g('outcome'), subagent_session_id=g('subagent_session_id'))
        if name == 'subagentStart':
            self.put(step, parent_step_id=g('parent_step_id'), subagent_session_id=g('subagent_session_id'))
        if name == 'preCompact':
            self.put_list(step, entries_to_compact=payload['entries_to_compact'])
            self.put(step, triggered_by=g('triggered_by'))
            summary = g('pre_compact_provenance_summary')
            if summary is not None:
                d = {}
                for k in ('origins_seen', 'entry_count', 'max_lineage_depth'):
                    if k in summary:
                        d[k] = summary[k]
                for k in ('entry_count_by_origin', 'earliest_step_id_by_origin'):
                    if k in summary:
                        d[k] = {clamp(a): clamp(b) if isinstance(b, str) else b for a, b in summary[k].items()}
                step['declared_summary'] = d
        if name == 'postCompact':
            self.put_list(step, entries_compacted=payload['entries_compacted'])
            self.put(step, pre_compact_chain_hash=g('pre_compact_chain_hash'))
            self.put_number(step, lineage_depth_after=g('lineage_depth_after'))
        if name in ('skillRegister', 'skillLoad', 'skillUnload'):
            self.put(step, skill_id=g('skill_id'))
        if name == 'skillRegister':
            self.put(step, digest_algorithm=g('definition', 'digest', 'algorithm'), digest_value=g('definition', 'digest', 'value'))
        if name == 'skillLoad':
            self.put(step, digest_algorithm=g('digest', 'algorithm'), digest_value=g('digest', 'value'), parent_step_id=g('parent_step_id'))
        if name == 'agbom/changed':
            self.put(step, trigger_step_id=g('trigger_step_id'))
        if name == 'handshake/hello':
            self.put(step, provenance_producer=g('provenance_producer'))
        if m.startswith('protocols/') or m.startswith('wrapped:'):
            if ('result' in payload or 'error' in payload) and 'method' not in payload:
                step['answer'] = True
            if payload.get('id') is not None:
                step['inner_id'] = self.json_id(payload['id'])
        if provenance:
            step['provenance'] = [self.provenance_object(x) for x in provenance]
        if missing:
            step['provenance_missing'] = missing
        self.emit(rec, step, i, out)

    def json_id(self, x):
        if isinstance(x, str):
            return clamp(x)
        t = jcs(x)
        return clamp(t) if len(t.encode()) > 256 else x

    def put(self, step, **kw):
        for k, v in kw.items():
            if v:
                step[k] = clamp(v)

    def put_number(self, step, **kw):
        for k, v in kw.items():
            if v is not None:
                step[k] = v

    def put_list(self, step, **kw):
        for k, v in kw.items():
            if v:
                step[k] = [clamp(x) for x in v]

    def provenance_object(self, x):
        o = {'provenance_id': clamp(x['provenance_id']), 'origin': clamp(x['origin'])}
        if x.get('source_id'):
            o['source_id'] = clamp(x['source_id'])
        if x.get('derived_from'):
            o['derived_from'] = [clamp(y) for y in x['derived_from']]
        return o


CONFIGS = [
    {'map': {}, 'default': 'default', 'max': 1 << 20, 'reject': False, 'strict': False},
    {
        'map': {'acs.hooks.turn-end': 'acme', 'acs.hooks.user-message': 'acme'},
        'default': 'none', 'max': 20000, 'reject': True, 'strict': True,
    },
]


def expect(line):
    """What becomes of the record of a line."""
    record = {
        'topic': line['topic'], 'partition': 2, 'offset': 7, 'recorded': 1789812000000, 'key': line['key'],
        'headers': line['headers'], 'value': base64.b64decode(line['value']),
    }
    out = Reader(CONFIGS[line['config']]).read(record)
    dead = out['dead'] and [x or '' for x in out['dead']]
    return {'steps': [jcs(step) for step in out['steps']], 'dropped': out['dropped'], 'dead': dead}


if __name__ == '__main__':
    lines = [json.loads(line) for line in open(sys.argv[1], encoding='utf-8')]
    with open(sys.argv[1], 'w', encoding='utf-8') as out:
        for line in lines:
            line['want'] = expect(line)
            out.write(json.dumps(line, ensure_ascii=False) + '\n')
