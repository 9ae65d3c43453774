# SPDX-License-Identifier: MIT
"""Accounts at a reload: nothing is taken by half, what has to wait is named, and no sandbox ends because of a section."""
import contextlib
import os
import time

import pytest

import harness
from api import Api, ApiError
from fakecloud import FakeCloud
from harness import until
from y_manager import folder, rewrite  # noqa: F401
from y_reload import UID, alive, append, left, make_second, running, section, took  # noqa: F401


def text_of(d):
    with open(d.conf_path, encoding="utf-8") as f:
        return f.read()


def write(d, text):
    with open(d.conf_path, "w", encoding="utf-8") as f:
        f.write(text)


def still(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition()
        time.sleep(.1)


@pytest.mark.parametrize("how", ["renamed", "one more"])
def test_another_account_of_the_same_team_ends_nothing(cloud, second, how):
    """What one account has and somebody leases, another one of the same team does not end as unclaimed."""
    with running(cloud, {"daemon": {"unclaimed_grace": "1s", "reconcile_period": "1s", "restart_grace": "1s"}}) as (d, api):
        append(d, section(second, d))
        took(api)
        box = api.call("SandboxService.Create", account="other", process_lease=True, policy={"on_release": "KILL"}).id
        if how == "renamed":
            rewrite(d, ("[account other]", "[account another]"))
        else:
            append(d, section(second, d, "another"))
        assert not api.call("DaemonService.Reload").problems
        still(lambda: alive(second, box), 5)
        assert api.call("SandboxService.Get", sandbox=box).leases == 1


def test_a_start_with_a_renamed_account_ends_nothing(cloud, second, folder):  # noqa: F811
    """The rows of the account before are left alone, and so are their sandboxes, whatever their tags say."""
    conf = {"daemon": {"unclaimed_grace": "1s", "reconcile_period": "1s", "restart_grace": "1s"}}
    with running(cloud, conf, folder=folder) as (d, api):
        append(d, section(second, d))
        took(api)
        box = api.call("SandboxService.Create", account="other", policy={"on_release": "KILL"}).id
    with running(cloud, dict(conf, **{"account another": dict(t.split(" = ", 1) for t in section(second, d).splitlines()[1:])}),
                 folder=folder) as (d, api):
        still(lambda: alive(second, box), 5)
        assert "sandbox_adopted" not in d.log()


def test_what_belongs_to_an_address_waits_with_it(cloud, second):
    """The CA, the key and the proxy of another cloud are not used with the address of the one before."""
    with running(cloud, {}) as (d, api):
        box = api.call("SandboxService.Create", process_lease=True, sandbox_timeout=60).id
        with open(d.home + "/new-key", "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write(harness.OTHER_KEY + "\n")
        write(d, text_of(d).replace(cloud.url, second.url).replace(cloud.ca, second.ca).replace(d.home + "/key", d.home + "/new-key"))
        assert left(api) >= {"account default api_url", "account default sandbox_url"}
        api.call("SandboxService.SetTimeout", sandbox=box, sandbox_timeout=300, timeout=10)
        assert not [r for r in cloud.ledger.requests if r.header("x-api-key") == harness.OTHER_KEY]


def test_the_new_key_stays_from_the_old_cloud(cloud, second):
    with running(cloud, {}) as (d, api):
        with open(d.home + "/new-key", "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write(harness.OTHER_KEY + "\n")
        write(d, text_of(d).replace(cloud.url, second.url).replace(d.home + "/key", d.home + "/new-key"))
        left(api)
        with contextlib.suppress(ApiError):
            api.call("SandboxService.Create", timeout=5)
        assert not [r for r in cloud.ledger.requests if r.header("x-api-key") == harness.OTHER_KEY]


def test_a_warm_entry_of_a_retired_account(cloud, second):
    """The start would refuse this file, and so does a reload."""
    with running(cloud, {}) as (d, api):
        text = section(second, d)
        append(d, text + "[warm py]\ntemplate = base\nsize = 1\nuids = root\naccount = other\n")
        took(api)
        until(lambda: len(second.by_id) == 1 and "warm_ready" in d.log(), 20, "a warm one")
        rewrite(d, (text, ""))
        problems = api.call("DaemonService.Reload").problems
        with contextlib.suppress(ApiError):
            api.call("SandboxService.Create", account="other", warm="PREFER")
        time.sleep(2)
        assert problems and "[warm py] account" in problems[0] or len(second.by_id) == 1, (len(second.by_id), problems)
        assert problems


def test_another_first_account_is_named(cloud, second):
    """Another order is another account of all who are told none: a restart."""
    with running(cloud, {}) as (d, api):
        own, text = text_of(d), section(second, d)
        append(d, text)
        took(api)
        write(d, text + own)
        assert left(api) and api.call("DaemonService.Config").file_changed


def test_another_first_account_besides_the_environment(cloud, second, folder):  # noqa: F811
    env = {"XDG_RUNTIME_DIR": folder, "HOME": folder, "E2B_API_KEY": cloud.key, "E2B_API_URL": cloud.url, "E2B_SANDBOX_URL": cloud.url}
    unset = {k: None for k in ("api_url", "sandbox_url", "api_key_file", "proxy", "ca_file")}
    with running(cloud, {"account default": unset, "daemon": {"log_level": "info"}}, folder=folder, env=env) as (d, api):
        write(d, "[daemon]\nlog_level = info\n" + section(second, d))
        assert left(api)        # after a restart there is no account "default"


def test_nothing_of_an_account_that_waits_is_taken(cloud, second):
    """Nor named for ever when the file is as before."""
    with running(cloud, {}) as (d, api):
        own = text_of(d)
        write(d, section(second, d) + own)
        r = api.call("DaemonService.Reload")
        taken = [v.key for v in r.taken]
        write(d, own)
        assert (taken, left(api)) == ([], set()) and not api.call("DaemonService.Config").file_changed


@pytest.mark.parametrize("before,after", [("[%s]\nmax_sandboxes = 9\naccount = a\n" % UID, "[%s]\nmax_sandboxes = 9\n[uid *]\naccount = stranger\n" % UID),
                                          ("[uid *]\naccount = a\n", "[uid *]\naccount = default\n[%s]\naccount = stranger\n" % UID)])
def test_a_uid_besides_an_account_that_waits(cloud, second, folder, before, after):  # noqa: F811
    """What is taken is in force: here that the uid has the first account again. A second reload changes nothing."""
    with running(cloud, {}, folder=folder) as (d, api):
        append(d, section(second, d, "stranger"))
        took(api)
        api.call("SandboxService.Create", account="stranger")
    with FakeCloud() as third, running(cloud, {}, folder=folder) as (d, api):
        append(d, section(third, d, "a") + before)
        took(api)
        assert api.call("SandboxService.Create").account == "a"
        rewrite(d, (before, after + section(second, d, "stranger")))
        left(api)
        first = api.call("SandboxService.Create").account
        left(api)
        assert (first, api.call("SandboxService.Create").account) == ("default", "default")


def test_a_file_that_cannot_be_read_to_its_end(cloud, second):
    """A FIFO (or a dead NFS) as a CA holds up neither later reloads nor the stop."""
    with running(cloud, {}) as (d, api):
        os.mkfifo(d.home + "/fifo", 0o600)
        append(d, section(second, d).replace(second.ca, d.home + "/fifo"))
        try:
            assert "fifo" in api.call("DaemonService.Reload", timeout=5).problems[0]
        finally:
            d.stop(timeout=15)


def test_local_has_no_accounts():
    """The start refuses [account] sections with --local."""
    with running(None, {}) as (d, api):
        append(d, "[account local]\nmax_sandboxes = 1\n")
        r = api.call("DaemonService.Reload")
        assert r.problems and not r.taken


def test_a_password_in_the_environment(cloud, second, folder):  # noqa: F811
    """Neither an answer nor the log shows it."""
    with running(cloud, {}, folder=folder, env={"https_proxy": "socks5://u:verysecretword@h:1"}) as (d, api):
        append(d, section(second, d, proxy="env"))
        said = api.call("DaemonService.Reload").problems
        assert said and "verysecretword" not in said[0] + d.log()


def test_room_for_accounts_is_used_up(cloud, second):
    """The file can be started with: the one account waits for that, and the rest is taken."""
    with running(cloud, {"daemon": {"drain_timeout": "20s"}}) as (d, api):
        own, text = text_of(d), section(second, d, "a")
        write(d, own + "".join(text.replace("[account a]", "[account a%d]" % i) for i in range(63)))
        took(api)
        write(d, own.replace("20s", "3s") + text)
        assert "account a api_url" in left(api)


def test_a_snapshot_in_a_retired_account(cloud, second):
    """(or the manual says that snapshots are still made)"""
    with running(cloud, {}) as (d, api):
        text = section(second, d)
        append(d, text)
        took(api)
        box = api.call("SandboxService.Create", account="other").id
        rewrite(d, (text, ""))
        left(api)
        with pytest.raises(ApiError):
            api.call("SnapshotService.Create", sandbox=box)
