# SPDX-License-Identifier: MIT
"""The status page at the gateway's /_agentboxd/: who may open it, what it shows and hides, that it is live; and in a real browser.

With SHOWS_FULL=1 screenshots of its states are kept in build/results."""
import html
import http.client
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.parse

import pytest

import harness
from harness import until
from w_door import new_token, port_of, root_only, runs, runtime, user_daemon       # noqa: F401 (fixtures)

FULL = os.environ.get("SHOWS_FULL") == "1"
BROWSER = shutil.which("chromium")
HOSTILE = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>\u202e&amp;\'"'


def ask(port, path, cookie=None, method="GET", **headers):
    c = http.client.HTTPConnection("localhost", port, timeout=20)
    try:
        head = {k.replace("_", "-"): v for k, v in headers.items()}
        if cookie:
            head["Cookie"] = cookie
        c.request(method, path, headers=head)
        r = c.getresponse()
        return r.status, r.headers, r.read().decode()
    finally:
        c.close()


def link(d):
    url = urllib.parse.urlsplit(d.ctl("page").stdout.strip())
    assert url.hostname == "localhost" and url.path == "/_agentboxd/", url
    return url.port, url.path + "?" + url.query


def session(d):
    port, path = link(d)
    status, head, _ = ask(port, path)
    assert (status, head["location"]) == (303, "/_agentboxd/"), status
    attributes = head["set-cookie"].split("; ")
    assert {"Path=/_agentboxd/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"} == set(attributes[1:]), attributes
    return port, attributes[0]


def text_of(page):
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def test_a_link_opens_it_once(user_daemon):
    """A ticket is good for one use; what it leaves is a session. Neither is anything else's key, and neither is logged."""
    d = user_daemon
    port, path = link(d)
    status, head, _ = ask(port, path)
    cookie = head["set-cookie"].split(";")[0]
    assert status == 303 and ask(port, path)[0] == 401
    status, head, page = ask(port, "/_agentboxd/", cookie)
    assert status == 200 and head["content-type"] == "text/html; charset=utf-8" and "All is well" in page
    nonce = re.search(r"script-src 'nonce-(\w{32})'", head["content-security-policy"]).group(1)
    assert page.count('nonce="%s"' % nonce) == 2 and "default-src 'none'" in head["content-security-policy"]
    assert (head["cache-control"], head["referrer-policy"], head["x-content-type-options"]) == ("no-store", "no-referrer", "nosniff")
    assert not re.search(r"(src|href)=\"?(?!/_agentboxd/)", page), "an address of somebody else"
    assert ask(port, "/_agentboxd/", "x=1; %s; y=2" % cookie)[0] == 200
    secret = cookie.split("=")[1]
    for name in ("X-API-Key", "Authorization", "Agentboxd-Token", "X-Access-Token"):
        assert ask(port, "/sandboxes", **{name: secret})[0] == 401
    assert ask(port, "/sandboxes", cookie)[0] == 401
    assert secret not in d.log() and path.split("=")[1] not in d.log() and "page_opened" in d.log()
    wrong = [secret[:-1] + ("0" if secret[-1] != "0" else "1"), path.split("=")[1], "t" + secret[1:], secret.replace(".2.", ".1.", 1), "", "s.2.0"]
    for value in wrong:
        assert ask(port, "/_agentboxd/", "agentboxd_page=" + value)[0] == 401, value
        assert ask(port, "/_agentboxd/?open=" + value)[0] == 401, value


def test_it_is_only_to_look_at(user_daemon):
    port, cookie = session(user_daemon)
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert ask(port, "/_agentboxd/", cookie, method)[0] == 405, method
    for path in ("/_agentboxd/x", "/_agentboxd/sandbox", "/_agentboxd/sandbox/../x", "/_agentboxd/live/x/y/z", "/_agentboxd/?page=%3Cx%3E"):
        assert ask(port, path, cookie)[0] == 404, path
    assert ask(port, "/_agentboxd/sandbox/i" + 20 * "0", cookie)[0] == 404
    assert ask(port, "/_agentboxd/?page=zzz", cookie)[0] == 400
    for origin in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "same-site"}, {"Sec_Fetch_Site": "cross-site"},
                   {"Host": "rebound.example:%d" % port}):
        assert ask(port, "/_agentboxd/", cookie, **origin)[0] in (403, 421), origin
    for own in ({"Sec_Fetch_Site": "none"}, {"Sec_Fetch_Site": "same-origin"}):
        assert ask(port, "/_agentboxd/", cookie, **own)[0] == 200


def test_what_it_shows(local, runtime):
    """Sandboxes, leases, commands with their output, events; and no secret of theirs."""
    d = harness.Daemon(local, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
    try:
        port, cookie = session(d)
        box = d.ctl("create", "--name", "seen", "-m", "who=" + HOSTILE, "-e", "PASSWORD=hidden-value").stdout.strip()
        d.ctl("exec", box, "--", "sh", "-c", "printf 'first\\nlast <b>\\n'; exit 3", check=False)
        running = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "exec", box, "--", "sh", "-c", "echo begun; sleep 60"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        until(lambda: "begun" in ask(port, "/_agentboxd/sandbox/" + box, cookie)[2], 20, "its output", d)
        page = ask(port, "/_agentboxd/", cookie)[2]
        one = ask(port, "/_agentboxd/sandbox/" + box, cookie)[2]
        for shown in (page, one):
            assert box in shown and "hidden-value" not in shown and "<img" not in shown and "\u202e" not in shown, shown
            assert "who=" + HOSTILE.replace("\u202e", "\ufffd") in text_of(shown)
        assert "created" in text_of(page) and "seen" in text_of(page)
        said = text_of(one)
        assert "exited with 3" in said and "first\nlast <b>" in said and "running" in said and "echo begun; sleep 60" in said
        d.ctl("kill", box)
        running.wait(20)
        until(lambda: "gone" in text_of(ask(port, "/_agentboxd/", cookie)[2]), 10, "the event", d)
    finally:
        d.close()


def test_looking_asks_nobody_and_wakes_nothing(user_daemon, cloud):
    """A paused sandbox that any use resumes stays paused, and neither the cloud nor an agent hears of the page."""
    d = user_daemon
    port, cookie = session(d)
    box = d.ctl("create", "--policy", "resume_on_use=yes", "--timeout", "1h").stdout.strip()
    d.ctl("exec", box, "--", "echo", "before the pause")
    d.ctl("pause", box)
    before = len(cloud.ledger.requests)
    for _ in range(3):
        assert "before the pause" in ask(port, "/_agentboxd/sandbox/" + box, cookie)[2]
        assert "paused" in text_of(ask(port, "/_agentboxd/", cookie)[2])
    assert [s.target for s in cloud.ledger.requests[before:] if "/v2/sandboxes" not in s.target] == []      # the daemon's own lists
    assert "paused" in d.ctl("get", box).stdout


def test_it_is_live(user_daemon):
    """An event when something changes, and none when nothing does."""
    d = user_daemon
    port, cookie = session(d)
    c = http.client.HTTPConnection("localhost", port, timeout=20)
    c.request("GET", "/_agentboxd/live", headers={"Cookie": cookie})
    r = c.getresponse()
    assert r.status == 200 and r.headers["content-type"] == "text/event-stream"

    def event():
        lines = []
        while not lines or lines[-1] != "\n":
            lines.append(r.readline().decode())
        assert all(line.startswith("data: ") for line in lines[:-1]), lines
        return "\n".join(line[6:-1] for line in lines[:-1])
    assert event() == re.search(r"<main[^>]*>(.*)</main>", ask(port, "/_agentboxd/", cookie)[2], re.S).group(1)
    box = d.ctl("create").stdout.strip()
    seen = event()
    while box not in seen:
        seen = event()
    d.ctl("kill", box)
    while "gone" not in seen:
        seen = event()
    c.close()


def test_a_session_outlives_a_restart(cloud, runtime):
    folder, env = harness.temp_dir("abx-"), {"XDG_RUNTIME_DIR": runtime, "HOME": runtime}
    d = harness.Daemon(cloud, env=env, folder=folder)
    port, cookie = session(d)
    _, unused = link(d)
    d.stop()
    d = harness.Daemon(cloud, env=env, folder=folder)
    port_of(d)
    try:
        assert ask(port, "/_agentboxd/", cookie)[0] == 200
        assert ask(port, unused)[0] == 401      # a ticket does not
    finally:
        d.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_many_viewers_are_bounded(user_daemon):
    port, cookie = session(user_daemon)
    held = []
    try:
        for _ in range(16):
            c = http.client.HTTPConnection("localhost", port, timeout=20)
            c.request("GET", "/_agentboxd/live", headers={"Cookie": cookie})
            assert c.getresponse().status == 200
            held.append(c)
        assert ask(port, "/_agentboxd/", cookie)[0] == 503
        held.pop().close()
        until(lambda: ask(port, "/_agentboxd/", cookie)[0] == 200, 10, "a place", user_daemon)
    finally:
        for c in held:
            c.close()


AS_UID = """import http.client, sys
c = http.client.HTTPConnection("localhost", int(sys.argv[1]), timeout=20)
c.request("GET", sys.argv[2], headers={"Cookie": sys.argv[3]} if sys.argv[3] else {})
r = c.getresponse()
print(r.status, r.headers.get("set-cookie", "-").split(";")[0])
sys.stdout.write(r.read().decode())
"""


@root_only
def test_each_uid_sees_its_own(cloud, runtime):
    """A system daemon: another uid's ticket and cookie are good for nothing, an observer sees what is everybody's without secrets."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    d = harness.Daemon(cloud, {"gateway": {"listen": "localhost:%d" % port}, "access": {"observe": "61003"}}, args=("--system",))
    os.chmod(d.home, 0o755)

    def as_uid(uid, *words):
        return subprocess.run(harness.as_user(uid, list(words)), capture_output=True, text=True, timeout=30)

    def look(uid, path, cookie=""):
        r = as_uid(uid, "/usr/bin/python3", "-c", AS_UID, str(port), path, cookie)
        assert r.returncode == 0, r.stderr
        head, _, page = r.stdout.partition("\n")
        return int(head.split()[0]), head.split()[1], page

    def ctl(uid, *words):
        r = as_uid(uid, harness.AGENTBOXCTL, "--socket", d.socket, *words)
        assert r.returncode == 0, r.stderr
        return r.stdout.strip()
    try:
        links = {uid: urllib.parse.urlsplit(ctl(uid, "page")) for uid in (61001, 61002, 61003)}
        boxes = {uid: ctl(uid, "create", "-m", "secret=of-%d" % uid, "--name", "name-of-%d" % uid) for uid in (61001, 61002)}
        paths = {uid: u.path + "?" + u.query for uid, u in links.items()}
        assert look(61002, paths[61001])[0] == 401              # another's
        cookies = {}
        for uid, path in paths.items():
            status, cookies[uid], _ = look(uid, path)
            assert status == 303, uid
        assert look(61002, "/_agentboxd/", cookies[61001])[0] == 401
        assert look(0, "/_agentboxd/", cookies[61001])[0] == 401
        status, _, own = look(61001, "/_agentboxd/", cookies[61001])
        assert status == 200 and boxes[61001] in own and "of-61001" in own and boxes[61002] not in own and "of-61002" not in own
        assert look(61001, "/_agentboxd/sandbox/" + boxes[61002], cookies[61001])[0] == 404
        status, _, all_of_them = look(61003, "/_agentboxd/", cookies[61003])
        assert status == 200 and all(b[:6] + "..." in all_of_them and b not in all_of_them for b in boxes.values())
        assert "of-6100" not in all_of_them
        assert look(61003, "/_agentboxd/sandbox/" + boxes[61001], cookies[61003])[0] == 404
    finally:
        d.close()


# --- in a real browser

VIEWS = (("1280,1600", "wide", True), ("390,844", "phone", True), ("1280,1600", "without-scripts", False))


def browse(folder, url, size="1280,1600", shot=None, scripts=True):
    home = os.path.join(folder, "with" if scripts else "without")
    if not scripts:     # by the browser's own setting: with the engine's it has no tree and no picture either
        os.makedirs(os.path.join(home, "Default"), exist_ok=True)
        with open(os.path.join(home, "Default", "Preferences"), "w", encoding="ascii") as f:
            f.write('{"profile":{"default_content_setting_values":{"javascript":2}}}')
    argv = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
            "--user-data-dir=" + home, "--window-size=" + size, "--hide-scrollbars", "--timeout=60000"]
    argv += ["--screenshot=" + shot] if shot else ["--dump-dom"]
    return subprocess.run(argv + [url], capture_output=True, text=True, timeout=120, env=dict(os.environ, HOME=folder))


def kept(name):
    """Where a screenshot stays, in full size."""
    folder = os.path.join(harness.BUILD, "results")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, "page-%s.png" % name)


@pytest.mark.skipif(not BROWSER, reason="no Chromium here (the package chromium)")
@pytest.mark.timeout(600 if FULL else 120)
@pytest.mark.parametrize("state", ["empty", "busy", "hostile"] if FULL else ["hostile"])
def test_in_a_browser(user_daemon, state, cloud):
    """An empty, a busy and a hostile state: it renders, no script of a name runs, and it is the same without scripts."""
    d, folder = user_daemon, harness.temp_dir("abb-")
    boxes = []
    if state == "busy":
        n = 1000
        threads = [threading.Thread(target=lambda: boxes.extend(d.ctl("create", "--timeout", "1h").stdout.strip() for _ in range(n // 8)))
                   for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(boxes) == n
    if state == "hostile":
        boxes = [d.ctl("create", "--name", "a'b", "-m", HOSTILE[:60] + "=" + HOSTILE, check=False).stdout.strip() or
                 d.ctl("create", "-m", "x=" + HOSTILE).stdout.strip()]
    try:
        for size, name, scripts in VIEWS if FULL else VIEWS[:1]:
            port, path = link(d)
            dom = browse(folder, "http://localhost:%d%s" % (port, path), size, scripts=scripts).stdout
            assert "agentboxd " in dom and "<title>agentboxd</title>" in dom, dom[-1500:]
            assert "<img" not in dom and "owned" not in re.sub(r"<main.*</main>", "", dom, flags=re.S)
            shown = [b for b in boxes if b in dom]
            assert len(shown) == min(len(boxes), 100), (len(shown), len(boxes))
            shot = kept("%s-%s" % (state, name)) if FULL else os.path.join(folder, "shot.png")
            port, path = link(d)
            r = browse(folder, "http://localhost:%d%s" % (port, path), size, shot, scripts)
            with open(shot, "rb") as f:
                head = f.read(24)
            assert head[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(head[16:20], "big") == int(size.split(",")[0]), r.stderr[-500:]
            if FULL:
                print("%s %s: %s" % (state, name, shot))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
