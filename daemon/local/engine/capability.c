/* SPDX-License-Identifier: MIT */
/* What this machine and user allow, in words, for --capabilities. */
#include "daemon/local/engine/container_int.h"
#include "proto/base/str.h"

struct list_of {
	struct container_capability *c;
	size_t n;
};

static void add(struct list_of *l, const char *name, bool available, const char *yes, const char *no)
{
	struct container_capability *c;

	if (l->n == CONTAINER_CAPABILITIES_MAX)
		return;
	c = &l->c[l->n++];
	c->name = name;
	c->available = available;
	(void)str_copy(c->text, sizeof(c->text), available ? yes : no);
}

size_t engine_capabilities(const struct engine *bs,
			   struct container_capability ret[CONTAINER_CAPABILITIES_MAX])
{
	const struct container_facts *f = &bs->facts;
	const struct cg_roots *cg = &f->cg;
	struct list_of l = { ret, 0 };

	add(&l, "sandboxes", bs->is_ready && bs->ready_r == 0, "sandboxes can be made here",
	    bs->is_ready ? bs->why : "not known yet");
	add(&l, "id-range", !f->as_user, "each sandbox has 65,536 ids of its own",
	    "one id is mapped: root inside is you, other users are shown in nested namespaces, owners "
	    "are kept in an xattr");
	add(&l, "change-user", !f->as_user, "su, chown and daemons that drop to another user work",
	    "programs inside cannot change to another user; files made by root's commands show as "
	    "user's");
	add(&l, "idmapped-mounts", f->idmap, "layers are id-mapped, nothing is copied",
	    f->as_user ? "not for ordinary users" : "the layer is shifted by chown; /usr shows as nobody's");
	add(&l, "usr-writable", f->usr_writable,
	    "/usr inside can be changed, in the sandbox only", "/usr is read-only inside");
	add(&l, "usr-public-only", !f->as_user,
	    f->usr_writable ? "root inside reads of /usr what everybody may read: by an overlay mounted without rights"
			    : "root inside reads of /usr what everybody may read: none of its ids is mapped",
	    "below /usr what only you or your groups may read can be read inside");
	add(&l, "memory-limit", cg_has_memory(cg), "by cgroup", "no memory cgroup can be used");
	add(&l, "process-limit", true, cg_has_pids(cg) ? "by cgroup" : "by RLIMIT_NPROC", "");
	add(&l, "cpu-limit", cg_has_cpu(cg), "by cgroup", "no cpu cgroup can be used");
	add(&l, "usage", cg_has_usage(cg), "by cgroup", "processor time and memory are not known");
	add(&l, "freeze", cg_has_freezer(cg), "by cgroup: nothing inside can notice", "by SIGSTOP and SIGCONT, which programs inside can notice");
	add(&l, "internet", f->egress,
	    "outgoing TCP and name lookups go through agentbox-local, which keeps to allowOut, denyOut and "
	    "allow_internet_access, and through egressProxy: IPv4 only, nothing but the internet (see --egress-to), no UDP, no ICMP",
	    f->egress_why);
	add(&l, "header-rules", f->egress,
	    "network.rules for plain HTTP/1.1; a TLS connection to a host that has rules is reset, since nothing "
	    "can be set inside of it (x-agentbox-local-limits: no-tls-rules); tokens and secrets in rules are "
	    "refused with 400", f->egress_why);
	add(&l, "disk-limit", false, "", "a sandbox can fill the disk that holds the state directory");
	add(&l, "memory-snapshot", false, "", "memory is not part of a snapshot or a fork, and of a pause only while agentbox-local lives");
	add(&l, "sudo", bs->has_sudo, "without a password: a program of our own asks the sandbox's init; other set-user-id programs have no power",
	    "agentbox-sudo is not installed, and set-user-id programs have no power: ask for user root");
	return l.n;
}
