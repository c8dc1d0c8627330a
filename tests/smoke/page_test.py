#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The page of kvroute-ctl exporter in a real browser: each part shows the state of the router, light and dark, on a desktop and a phone.

protocol_test.sh starts it: page_test.py KVROUTE KVROUTE_CTL. Two agents, requests, one that stays in flight, an orphan block and a drain fill
every part. KVR_PICTURES=FOLDER keeps the screenshots. Exit status 77: no Chromium.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

import child
import kvrproto as p
from chromium import PROGRAM, Browser
from protocol_router import ADDRESSES, Router

POOL, B, KNOWN = 3, 16, 40
POOLS = f'''[pool llama]
id = {POOL}
block_size = {B}
max_ranks = 4
max_jobs = 64
max_blocks = 65536
max_requests = 256
max_sessions = 0
'''
# Colours that text has on its ground, and how much they differ (WCAG's contrast).
CONTRAST = """(() => {
  const rgb = c => c.match(/[0-9.]+/g).slice(0, 3).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
  const light = c => { const [r, g, b] = rgb(c); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = light(getComputedStyle(document.querySelector(".card")).backgroundColor);
  const worst = Math.min(...[...document.querySelectorAll(".card b, .card h2, .card h3, .card td, .card th, .good, .bad, .fix, .key, .ends, .plot span")]
    .map(e => light(getComputedStyle(e).color)).map(l => (Math.max(l, ground) + .05) / (Math.min(l, ground) + .05)));
  return [light(getComputedStyle(document.body).backgroundColor), worst];
})()"""


class Failed(Exception):
    pass


def need(ok, what):
    if not ok:
        raise Failed(what)


class Rig:
    def __init__(self, router):
        self.router, self.client = router, p.Client(ADDRESSES[0])
        self.agents = [p.Agent(ADDRESSES[0], 101 + i, 'llama', B, total_kv_blocks=100 * (i + 1)) for i in range(2)]
        self.all = [*self.agents, self.client]
        for agent in self.agents:
            agent.answer = lambda job, agent=agent: agent.item(job, b'x', tokens=5, fin=True, cached=(KNOWN - 4) * B)

    def until(self, what, condition):
        if not p.run_until(self.all, condition, 60):
            raise Failed(f'{what} does not happen')

    def route(self, blocks):
        return self.client.route(POOL, blocks * B + 5, p.sequence_hashes(range(blocks * B), B))

    def begin(self):
        for agent in self.agents:
            agent.hello()
        self.client.connect()
        self.until('agents serve', lambda: all(a.state == 'SERVING' for a in self.agents) and self.client.limits)
        first = self.agents[0]
        first.stored(0, p.sequence_hashes(range(KNOWN * B), B))
        self.until('events are taken', lambda: first.ranks[0].acked == first.ranks[0].next)

    def work(self):
        requests = [self.route(KNOWN) for _ in range(20)]
        self.until('requests end', lambda: all(r.ended for r in requests))
        for agent in self.agents:
            agent.answer = lambda job: None
        stays = self.route(KNOWN)
        self.until('one runs', lambda: any(j for a in self.agents for j in a.jobs.values() if not j.fin) and not stays.ended)
        self.agents[0].event(0, p.STORED, hashes=p.sequence_hashes(range(70000, 70000 + 3 * B), B)[2:], parent=0x1234567)
        self.agents[0].flush(0)
        rank = self.agents[0].ranks[0]
        self.until('the orphan is taken', lambda: rank.acked == rank.next)
        self.router.telemetry('/kvroute/drain,102')
        self.until('it drains', lambda: self.agents[1].state in ('DRAINING', 'DRAINED'))


def exporter(ctl, prefix):
    run = child.start([ctl, '--router', prefix, 'exporter', '--listen', '127.0.0.1:0', '--seconds', '0.3'], stdin=subprocess.DEVNULL,
                      stderr=subprocess.PIPE, text=True)
    line = run.stderr.readline()
    need('exporter ready' in line, f'exporter: {line}')
    return run, int(re.search(r'port (\d+)', line)[1])


def data(port):
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/data', timeout=60) as r:
        return json.load(r)


class Page:
    """The page in the browser, with queries."""

    def __init__(self, browser):
        self.browser = browser

    def text(self, css):
        return self.browser.value(f'[...document.querySelectorAll({json.dumps(css)})].map(e => e.textContent)')

    def until(self, what, condition):
        end = time.monotonic() + 60
        while not condition():
            need(time.monotonic() < end, f'{what} is not shown: {self.text("main")}')
            time.sleep(0.1)

    def lines(self, chart):
        return self.browser.value(f'[...document.querySelectorAll("#c-{chart} path:not(.grid)")].map(e => e.getAttribute("d"))')

    def shows(self, port):
        """Each part shows the values of /data."""
        self.until('a change', lambda: any('worker 102: serving' in t for t in self.text('#changes li')))
        self.until('a finding', lambda: 'orphan-blocks' in self.text('#doctor')[0] and 'with an unknown parent' in self.text('#doctor')[0])
        for chart in ('rate', 'hits', 'queue'):  # of four samples at least: the exporter may be as new as the page
            self.until(f'lines of {chart}', lambda chart=chart: len(self.lines(chart)) == 2 and all(line.count('L') >= 3 for line in self.lines(chart)))
            need(all('NaN' not in line for line in self.lines(chart)), f'{chart}: {self.lines(chart)}')
        sample = data(port)
        rows = {r[0]: r for r in (self.browser.value('[...document.querySelectorAll("#workers tr")].slice(1).map(r => [...r.cells].map(c => c.textContent))'))}
        need(set(rows) == {'101', '102'} and rows['101'][1] == 'serving' and rows['102'][1] in ('draining', 'drained'), f'{rows}')
        bars = self.browser.value('[...document.querySelectorAll("#workers .bar i")].map(e => e.style.width)')
        # One request runs at the rank with the blocks: KNOWN blocks and the orphan.
        need(bars == ['100%', f'{KNOWN + 1}%', '0%', '0%'], f'bars of load and cache: {bars}')
        tiles = dict(zip(self.text('.tile span'), self.text('.tile b')))
        need(tiles['in flight'] == '1' and int(tiles['blocks in table']) >= KNOWN, f'{tiles}')
        self.histograms(sample)
        hits = dict(self.browser.value('[...document.querySelectorAll("#hits tr")].slice(1).map(r => [r.cells[0].textContent, r.cells[1].textContent])'))
        need(hits['found of predicted'] == f'{100 * (KNOWN - 4) / KNOWN:.0f} %', f'{hits}')
        need(any(k.startswith('not found: ') for k in hits), f'{hits}')
        need(self.text('#queues td')[:2] == ['llama', '0'], f'{self.text("#queues")}')
        need(len(self.text('#stages tr')) > 4, f'{self.text("#stages")}')

    def histograms(self, sample):
        """One bar per bucket; the titles add up to the count."""
        want = sample['buckets']['llama']['histograms']
        need('time_to_first_token_seconds' in want and 'kv_hit_rate' in want, f'{want}')
        shown = self.browser.value('[...document.querySelectorAll(".hists > div")].map(h => [h.querySelector("h3").textContent, '
                                   '[...h.querySelectorAll(".hist span")].map(s => [s.title, s.children[0].style.height])])')
        need([name for name, _ in shown] == [n.removesuffix('_seconds').removesuffix('_ms').replace('_', ' ') for n in want], f'{shown}')
        for (name, bars), h in zip(shown, want.values()):
            counts = [int(re.search(r': (\d+)', title)[1]) for title, _ in bars]
            need(len(counts) == len(h['le']) and sum(counts) > 0 and any(height == '100%' for _, height in bars), f'{name}: {bars}')

    def fits(self, what, screen):
        """Nothing is wider than the screen except elements that scroll. (A phone widens its window to fit the content.)"""
        wide, small = self.browser.value('[document.scrollingElement.scrollWidth, Math.min(...[...document.querySelectorAll('
                                                 '"td, th, li, span, b, div")].filter(e => e.textContent).map(e => parseFloat(getComputedStyle(e).fontSize)))]')
        need(wide <= screen, f'{what}: {wide} pixels on a screen of {screen}')
        need(small >= 12, f'{what}: letters of {small} pixels')

    def contrast(self, what, dark):
        ground, worst = self.browser.value(CONTRAST)
        need(ground < 0.1 if dark else ground > 0.8, f'{what}: background luminance {ground}')
        need(worst >= 4.5, f'{what}: contrast of text only {worst}')

    def look(self, folder):
        for name, width, dark, phone in (('desk-light', 1200, False, False), ('desk-dark', 1200, True, False),
                                         ('phone-light', 390, False, True), ('phone-dark', 360, True, True)):
            self.browser.screen(width, 844, dark, phone)
            self.fits(name, width)
            self.contrast(name, dark)
            hidden = self.browser.value('[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth).map(e => e.id)')
            need(not hidden, f'{name}: {hidden} are cut off')
            path = f'{folder}/{name}.png'
            self.browser.picture(path)
            with open(path, 'rb') as f:
                need(f.read(8) == b'\x89PNG\r\n\x1a\n' and os.path.getsize(path) > 10000, f'{name}: no picture')


def run(router, ctl, folder):
    rig = Rig(router)
    rig.begin()
    export, port = exporter(ctl, router.prefix)
    browser = None
    try:
        # A change shows between two samples: the first must precede it.
        rig.until('a sample', lambda: 'serving' in json.dumps(data(port)))
        rig.work()
        browser = Browser()
        page = Page(browser)
        browser.screen(1200, 900, False)
        browser.go(f'http://127.0.0.1:{port}/')
        page.shows(port)
        page.look(folder)
        export.terminate()
        need(export.wait(60) == 0, f'the exporter ended with {export.returncode}')
        page.until('that the exporter has ended', lambda: 'bad' in browser.value('document.getElementById("state").className'))
        complaints = [c for c in browser.complaints if 'ERR_CONNECTION_REFUSED' not in json.dumps(c)]
        need(not complaints, f'the page complains: {complaints}')
    finally:
        export.kill()
        if browser:
            browser.close()


def main():
    if not PROGRAM:
        print('no chromium here')
        sys.exit(77)
    router = Router(sys.argv[1], POOLS, 'suspect_ms = 60000\ndead_ms = 600000')
    failed = True
    try:
        router.telemetry('/kvroute/balance')
        with tempfile.TemporaryDirectory(prefix='kvr-page.') as folder:
            run(router, sys.argv[2], os.environ.get('KVR_PICTURES', folder))
        failed = False
        print('shown')
    except (Failed, RuntimeError, OSError):
        traceback.print_exc()
    finally:
        router.process.send_signal(signal.SIGTERM)  # it need not wait for the request that stays
        failed = router.finish(failed)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
