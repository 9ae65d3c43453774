/* SPDX-License-Identifier: MIT */
/* The command line of agentbox-local. */
#ifndef AB_DAEMON_LOCAL_MAIN_CFG_H
#define AB_DAEMON_LOCAL_MAIN_CFG_H

#include <stdbool.h>
#include <sys/socket.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/egress/egress_host.h"
#include "daemon/local/engine/container.h"
#include "daemon/local/state/state.h"

struct cfg_addr {
	bool set;
	struct sockaddr_storage sa;
	socklen_t len;
};

struct cfg {
	struct cfg_addr listen, tls_listen;
	const char *cert_file, *key_file;
	bool auto_tls;
	const char *state_dir;
	const char *api_key_file;
	int ready_fd;			/* -1 = none */
	bool capabilities;
	struct container_template templates[TEMPLATES_MAX - 1];
	struct template_run runs[TEMPLATES_MAX - 1];	/* theirs */
	size_t n_templates;
	uint32_t max_sandboxes;
	uint32_t max_length_s;
	uint32_t memory_mb;
	uint32_t cpus;
	uint32_t exit_when_idle_s;	/* 0 = never */
	const char *domain;		/* NULL = localhost:PORT */
	enum log_level log_level;
	bool no_idmap, no_cgroup, no_egress;
	struct egrule_net egress_to[EGRESS_INNER_MAX];
	size_t n_egress_to;
};

#define CFG_DONE 1	/* help or version was printed */

/* Strings of the result are argv's. -EINVAL after the reason was printed to stderr. */
must_check int cfg_parse(int argc, char **argv, struct cfg *ret);
/* "127.0.0.1:80", "[::1]:80", "localhost:0". 0 or -EINVAL. */
must_check int cfg_parse_addr(const char *s, struct cfg_addr *ret);

#endif
