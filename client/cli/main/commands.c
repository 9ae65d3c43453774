/* SPDX-License-Identifier: MIT */
/* The order here is the order of the overview and of the completions. */
#include "client/cli/main/commands.h"

const struct command *const commands[] = {
	&cmd_create, &cmd_ls, &cmd_get, &cmd_inspect, &cmd_connect, &cmd_timeout, &cmd_kill, &cmd_running,
	&cmd_pause,  &cmd_resume, &cmd_fork, &cmd_snapshot, &cmd_template, &cmd_network, &cmd_host, &cmd_port_forward, &cmd_metrics,
	&cmd_exec, &cmd_shell, &cmd_attach, &cmd_logs, &cmd_wait, &cmd_signal, &cmd_ps, &cmd_cp, &cmd_cat, &cmd_files, &cmd_stat, &cmd_mkdir, &cmd_rm, &cmd_mv,
	&cmd_watch, &cmd_sign, &cmd_lease, &cmd_hold, &cmd_run, &cmd_env, &cmd_token, &cmd_warm,
	&cmd_policy, &cmd_events, &cmd_status, &cmd_top, &cmd_page, &cmd_diag, &cmd_pool, &cmd_reload, &cmd_config, &cmd_quiesce, &cmd_backup, &cmd_restore, &cmd_local,
	&cmd_completion,
};

const size_t n_commands = ARRAY_SIZE(commands);
