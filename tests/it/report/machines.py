"""Reads the report of a folder as JUnit XML, SARIF and CSV."""
import sys, csv, json, xml.etree.ElementTree as E
d = sys.argv[1]
root = E.parse(d + '/r.junit.xml').getroot()
cases = root.findall('.//testcase')
# Four first numbers, two checks, a warning and ten measures.
assert int(root.get('tests')) == len(cases) == 17, len(cases)
assert int(root.get('failures')) == len(root.findall('.//failure')) == 1
log = json.load(open(d + '/r.sarif'))
# What the schema of SARIF 2.1.0 requires: version and runs; of a run its tool's driver with a name; of a result a
# message; of levels one of four; URIs that are references.
assert log['version'] == '2.1.0' and log['$schema'].endswith('sarif-2.1.0.json') and len(log['runs']) == 1
run = log['runs'][0]
assert run['tool']['driver']['name'] == 'audit'
for r in run['results']:
    assert isinstance(r['message']['text'], str) and r['level'] in ('none', 'note', 'warning', 'error')
    place = r['locations'][0]['physicalLocation']
    assert place['region']['startLine'] >= 1 and ' ' not in place['artifactLocation']['uri']
assert all(isinstance(r['shortDescription']['text'], str) for r in run['tool']['driver']['rules'])
ids = [r['ruleId'] for r in run['results']]
assert ids == ['gate/ers/min', 'trust/a-warning'], ids
for r in run['results']:
    assert run['tool']['driver']['rules'][r['ruleIndex']]['id'] == r['ruleId']
    assert len(r['partialFingerprints']['auditFinding/v1']) == 64
    assert '<' not in r['locations'][0]['physicalLocation']['artifactLocation']['uri']
rows = list(csv.DictReader(open(d + '/r.csv', newline='')))
assert len(rows) == 9 * 60 + 1 and None not in rows[0] and None not in rows[-1].values()
assert {r['status'] for r in rows} == {'run', 'skipped: alone, in its class'}
assert rows[0]['query'] == 'class/00' + sys.argv[2], rows[0]['query']
print('read')
