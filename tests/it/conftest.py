# SPDX-License-Identifier: MIT
"""Fixtures of the integration tests. File names say what they are about: a_ boot, b_ basic calls, c_ lifecycle
and commands over crashes, d_ what they must stand, e_ escapes, f_ files and terminals, g_ the gateway, i_ interoperation with programs of others and the wire
contract, l_ load, s_ all calls of sandboxes and snapshots, u_ faults upstream, v_ and y_ users and the service manager, w_ the gateway's
door and programs that it runs, x_ what operators see, r_<issue> regressions.
"""
import os
import sys

import pytest

sys.dont_write_bytecode = True
os.environ.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1:exitcode=99")    # else it only says so
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))

import harness  # noqa: E402
import schema  # noqa: E402
from fakecloud import FakeCloud  # noqa: E402


def built(path):
    """A program that is not there is a failure, not a reason to skip: everything here builds everywhere."""
    if not os.path.exists(path):
        pytest.fail("%s is not built in %s" % (os.path.basename(path), harness.BUILD))


def is_whole_control_call(r):
    """A call of the daemon to the control plane that was read to its end."""
    return (r.header("user-agent") or "").startswith("agentboxd/") and r.header("x-api-key") and \
        (r.acted or r.status is not None) and r.body_len == len(r.body)


@pytest.fixture
def cloud():
    """A scripted cloud of the test's own; its ledger is the truth."""
    with FakeCloud() as c:
        yield c
        assert not c.errors, c.errors[0]
        odd = [(r, p) for r in c.ledger.requests if is_whole_control_call(r)
               for p in schema.check_request(r.method, r.target, r.headers, r.body)]
        assert not odd, odd[:5]


@pytest.fixture(scope="session")
def local_session():
    """One agentbox-local for all tests that only need a cloud; it must end clean and leave nothing."""
    built(harness.AGENTBOX_LOCAL)
    c = harness.LocalCloud()
    yield c
    traces = harness.Traces(c.home).look(c.pid)
    c.close()
    traces.gone()


@pytest.fixture
def local(local_session):
    if not local_session.running():
        pytest.fail("agentbox-local has ended:\n" + local_session.tail())
    return local_session


@pytest.fixture
def daemon(cloud):
    """agentboxd against the scripted cloud."""
    built(harness.AGENTBOXD)
    d = harness.Daemon(cloud)
    yield d
    d.close()


@pytest.fixture
def daemon_on_local(local):
    """agentboxd against agentbox-local."""
    built(harness.AGENTBOXD)
    d = harness.Daemon(local)
    yield d
    d.close()


@pytest.fixture
def api(daemon):
    from api import Api
    with Api(daemon.socket) as a:
        yield a


@pytest.fixture
def local_api(daemon_on_local):
    from api import Api
    with Api(daemon_on_local.socket) as a:
        yield a


# -- the command line on agentboxd --local

@pytest.fixture(scope="module")
def d():
    """One daemon with --local for a whole file; it must leave nothing."""
    built(harness.AGENTBOXD)
    built(harness.AGENTBOXCTL)
    one = harness.Daemon()
    yield one
    try:
        traces = harness.Traces(one.home).look(one.pid).look_at_local(one.state_dir)
    finally:
        one.close()
    traces.gone()


@pytest.fixture
def box(d):
    """A sandbox of it, by its id."""
    b = d.ctl("create", "--timeout", "5m").stdout.strip()
    yield b
    d.ctl("kill", b, check=False)
