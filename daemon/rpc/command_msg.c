/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/command_msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

Agentbox__V1__CommandResult *command_msg_result(struct result_message *r, const struct command_view *v)
{
	const struct command_result *from = v->result;

	agentbox__v1__command_result__init(&r->m);
	r->m.outcome = (Agentbox__V1__CommandResult__Outcome)from->outcome;
	if (from->outcome == COMMAND_EXITED) {
		r->m._exit_code_case = AGENTBOX__V1__COMMAND_RESULT___EXIT_CODE_EXIT_CODE;
		r->m.exit_code = from->exit_code;
	}
	r->m.signal = (char *)from->signal;
	r->m.timed_out = from->timed_out;
	r->m.killed = from->killed;
	r->m.stdout_bytes = v->end[SPOOL_STDOUT] + v->end[SPOOL_PTY];
	r->m.stderr_bytes = v->end[SPOOL_STDERR];
	r->m.output_complete = from->output_complete;
	r->m.pipes_held = from->pipes_held;
	r->m.survivors = (uint32_t *)from->survivors;
	r->m.n_survivors = from->n_survivors;
	r->m.exited_at = msg_time(&r->at, from->exited_at_ms);
	r->m.reason = (Agentbox__V1__Reason)from->reason;
	r->m.message = (char *)from->message;
	return &r->m;
}

static Agentbox__V1__StreamRange *fill_range(struct command_message *c, const struct command_view *v,
					     enum spool_stream s)
{
	if (!v->has[s])
		return NULL;
	agentbox__v1__stream_range__init(&c->range[s]);
	c->range[s].first = v->first[s];
	c->range[s].end = v->end[s];
	return &c->range[s];
}

int command_msg_fill(struct command_message *c, const struct command_view *v)
{
	agentbox__v1__command__init(&c->m);
	c->entries = NULL;
	c->m.command_id = v->foreign ? (char *)"" : (char *)v->id;
	c->m.sandbox = (char *)v->sandbox;
	c->m.pid = v->pid;
	c->m.generation = v->generation;
	c->m.shell = (char *)v->shell;
	c->m.args = (char **)v->args;
	c->m.n_args = v->n_args;
	c->m.user = (char *)v->user;
	c->m.cwd = (char *)v->cwd;
	c->m.pty = v->pty;
	c->m.tag = v->foreign ? (char *)v->tag : (char *)"";
	c->m.started_at = msg_time(&c->started, v->started_at_ms);
	c->m.last_output_at = msg_time(&c->last_output, v->last_output_at_ms);
	c->m.expires_at = msg_time(&c->expires, v->expires_at_ms);
	c->m.running = !v->result;
	if (v->result)
		c->m.result = command_msg_result(&c->result, v);
	c->m.stdout = fill_range(c, v, SPOOL_STDOUT);
	c->m.stderr = fill_range(c, v, SPOOL_STDERR);
	c->m.terminal = fill_range(c, v, SPOOL_PTY);
	c->m.group = v->group;
	c->m.foreign = v->foreign;
	if (!v->n_envs)
		return 0;
	c->entries = calloc(v->n_envs, sizeof(*c->entries));
	c->m.envs = calloc(v->n_envs, sizeof(*c->m.envs));
	if (!c->entries || !c->m.envs) {
		free(c->entries);
		free(c->m.envs);
		c->m.envs = NULL;
		return -ENOMEM;
	}
	for (size_t i = 0; i < v->n_envs; i++) {
		agentbox__v1__command__envs_entry__init(&c->entries[i]);
		c->entries[i].key = (char *)v->envs[i].key;
		c->entries[i].value = (char *)v->envs[i].value;
		c->m.envs[i] = &c->entries[i];
	}
	c->m.n_envs = v->n_envs;
	return 0;
}

void command_msg_fini(struct command_message *c)
{
	free(c->entries);
	free(c->m.envs);
}

/* --- output --- */

enum {	/* as they are encoded: number and wire type */
	EVENT_OUTPUT = 2 << 3 | 2,
	OUTPUT_STREAM = 1 << 3 | 0,
	OUTPUT_OFFSET = 2 << 3 | 0,
	OUTPUT_DATA = 3 << 3 | 2,
};

static uint8_t *put_number(uint8_t *at, uint8_t field, uint64_t v)
{
	*at++ = field;
	for (; v > 0x7f; v >>= 7)
		*at++ = (uint8_t)(v | 0x80);
	*at++ = (uint8_t)v;
	return at;
}

size_t command_msg_output_head(const struct spool_piece *p, uint8_t ret[COMMAND_MSG_HEAD_MAX])
{
	uint8_t fields[COMMAND_MSG_HEAD_MAX], *end = put_number(fields, OUTPUT_STREAM, p->stream), *at;

	if (p->offset)
		end = put_number(end, OUTPUT_OFFSET, p->offset);
	end = put_number(end, OUTPUT_DATA, p->size);
	at = put_number(ret, EVENT_OUTPUT, (uint64_t)(end - fields) + p->size);
	memcpy(at, fields, (size_t)(end - fields));
	return (size_t)(at - ret) + (size_t)(end - fields);
}
