/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/redact.h"
#include "proto/base/must.h"
#include "proto/base/name.h"
#include "proto/base/str.h"
#include "proto/gen/scan.h"

static const struct scan_cap caps[] = {
	{ "processes", MESSAGE_PROCESSES_MAX },
	{ "args", 65536 },
	{ "envs", 16384 },
	{ "metadata", 4096 },
};
static const struct scan_limits limits = {
	.caps = caps,
	.n_caps = ARRAY_SIZE(caps),
	/* Many small entries unpack to far more than their size on the wire. */
	.max_memory_bytes = 64u * 1024 * 1024,
};

int message_pack(const ProtobufCMessage *m, uint8_t **ret, size_t *ret_n)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	uint8_t *p = malloc(n ? n : 1);

	if (!p)
		return -ENOMEM;
	*ret_n = protobuf_c_message_pack(m, p);
	must(*ret_n == n);
	*ret = p;
	return 0;
}

void message_select(Process__ProcessSelector *ret, uint32_t pid)
{
	ret->selector_case = PROCESS__PROCESS_SELECTOR__SELECTOR_PID;
	ret->pid = pid;
}

static void *unpack(const ProtobufCMessageDescriptor *type, const uint8_t *p, size_t n, int *ret_err)
{
	ProtobufCMessage *m;

	if (scan_message(type, p, n, &limits, NULL) != SCAN_OK) {
		*ret_err = -EBADMSG;
		return NULL;
	}
	m = protobuf_c_message_unpack(type, NULL, n, p);
	*ret_err = m ? 0 : -ENOMEM;
	return m;
}

static void unpacked_free(void *m)
{
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
}

void envd_entry_fini(struct envd_entry *e)
{
	free(e->name);
	free(e->path);
	free(e->permissions);
	free(e->owner);
	free(e->group);
	free(e->symlink_target);
	cloud_kvs_fini(&e->metadata);
}

void message_result_fini(struct envd_result *r)
{
	for (size_t i = 0; i < r->n_processes; i++) {
		struct envd_process *p = &r->processes[i];

		free(p->tag);
		free(p->cmd);
		free(p->cwd);
		cloud_strs_fini(&p->args);
		cloud_kvs_fini(&p->envs);
	}
	free(r->processes);
	for (size_t i = 0; i < r->n_entries; i++)
		envd_entry_fini(&r->entries[i]);
	free(r->entries);
	r->processes = NULL;
	r->entries = NULL;
	r->n_processes = r->n_entries = 0;
}

/* --- processes --- */

static int take_process(const Process__ProcessInfo *m, struct envd_process *ret)
{
	const Process__ProcessConfig *c = m->config;
	int r = 0;

	ret->pid = m->pid;
	if (m->_tag_case) {
		ret->tag = str_dup(m->tag);
		r = ret->tag ? 0 : -ENOMEM;
	}
	if (!c || r < 0)
		return r;
	ret->cmd = str_dup(c->cmd);
	if (c->_cwd_case)
		ret->cwd = str_dup(c->cwd);
	if (!ret->cmd || (c->_cwd_case && !ret->cwd))
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < c->n_args; i++)
		r = cloud_strs_add(&ret->args, c->args[i]);
	for (size_t i = 0; r == 0 && i < c->n_envs; i++)
		r = cloud_kvs_add(&ret->envs, c->envs[i]->key, c->envs[i]->value);
	return r;
}

int message_processes(const uint8_t *p, size_t n, struct envd_result *ret)
{
	int r;
	Process__ListResponse *m = unpack(&process__list_response__descriptor, p, n, &r);

	if (m && m->n_processes) {
		ret->processes = calloc(m->n_processes, sizeof(*ret->processes));
		r = ret->processes ? 0 : -ENOMEM;
		for (size_t i = 0; r == 0 && i < m->n_processes; i++) {
			ret->n_processes = i + 1;
			r = take_process(m->processes[i], &ret->processes[i]);
		}
	}
	unpacked_free(m);
	return r;
}

/* --- files --- */

static char *take_name(const char *s, bool is_text)
{
	return is_text ? name_from_text(s) : str_dup(s);
}

static int take_entry(const Filesystem__EntryInfo *m, bool names_are_text, struct envd_entry *ret)
{
	int r = 0;

	ret->type = m->type <= FILESYSTEM__FILE_TYPE__FILE_TYPE_SYMLINK ? (enum envd_file_type)m->type :
									  ENVD_FILE_UNSPECIFIED;
	ret->size = m->size;
	ret->mode = m->mode;
	ret->name = take_name(m->name, names_are_text);
	ret->path = take_name(m->path, names_are_text);
	ret->permissions = str_dup(m->permissions);
	ret->owner = str_dup(m->owner);
	ret->group = str_dup(m->group);
	if (m->modified_time) {
		ret->modified_s = m->modified_time->seconds;
		ret->modified_ns = m->modified_time->nanos;
	}
	if (m->_symlink_target_case) {
		ret->symlink_target = take_name(m->symlink_target, names_are_text);
		r = ret->symlink_target ? 0 : -ENOMEM;
	}
	if (!ret->name || !ret->path || !ret->permissions || !ret->owner || !ret->group)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < m->n_metadata; i++)
		r = cloud_kvs_add(&ret->metadata, m->metadata[i]->key, m->metadata[i]->value);
	return r;
}

static int take_one(const Filesystem__EntryInfo *entry, struct envd_result *ret)
{
	if (!entry)
		return -EBADMSG;
	ret->entries = calloc(1, sizeof(*ret->entries));
	if (!ret->entries)
		return -ENOMEM;
	ret->n_entries = 1;
	return take_entry(entry, ret->names_are_text, &ret->entries[0]);
}

int message_stat(const uint8_t *p, size_t n, struct envd_result *ret)
{
	int r;
	Filesystem__StatResponse *m = unpack(&filesystem__stat_response__descriptor, p, n, &r);

	if (m)
		r = take_one(m->entry, ret);
	unpacked_free(m);
	return r;
}

int message_make_dir(const uint8_t *p, size_t n, struct envd_result *ret)
{
	int r;
	Filesystem__MakeDirResponse *m = unpack(&filesystem__make_dir_response__descriptor, p, n, &r);

	if (m && m->entry)
		r = take_one(m->entry, ret);
	unpacked_free(m);
	return r;
}

int message_move(const uint8_t *p, size_t n, struct envd_result *ret)
{
	int r;
	Filesystem__MoveResponse *m = unpack(&filesystem__move_response__descriptor, p, n, &r);

	if (m && m->entry)
		r = take_one(m->entry, ret);
	unpacked_free(m);
	return r;
}

int message_entry(const uint8_t *p, size_t n, bool names_are_text, struct envd_entry *ret)
{
	int r;
	Filesystem__EntryInfo *m = unpack(&filesystem__entry_info__descriptor, p, n, &r);

	*ret = (struct envd_entry){ .name = NULL };
	if (m) {
		r = take_entry(m, names_are_text, ret);
		if (r < 0)
			envd_entry_fini(ret);
	}
	unpacked_free(m);
	return r;
}

static int take_change(const Filesystem__FilesystemEvent *e, struct envd_watch_event *ret,
		       struct envd_result *held, char **ret_name)
{
	int r = 0;

	if (e->type < FILESYSTEM__EVENT_TYPE__EVENT_TYPE_CREATE ||
	    e->type > FILESYSTEM__EVENT_TYPE__EVENT_TYPE_CHMOD)
		return 0;	/* of a newer agent: ignored */
	*ret_name = take_name(e->name, held->names_are_text);
	if (!*ret_name)
		return -ENOMEM;
	if (e->_entry_case)
		r = take_one(e->entry, held);
	ret->type = ENVD_WATCH_CHANGE;
	ret->change = (enum envd_change)e->type;
	ret->name = *ret_name;
	ret->entry = r == 0 && held->n_entries ? &held->entries[0] : NULL;
	return r;
}

int message_watch(const uint8_t *p, size_t n, struct envd_watch_event *ret, struct envd_result *held,
		  char **ret_name)
{
	int r;
	Filesystem__WatchDirResponse *m = unpack(&filesystem__watch_dir_response__descriptor, p, n, &r);

	*ret = (struct envd_watch_event){ 0 };
	if (!m)
		return r;
	switch (m->event_case) {
	case FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_START:
		ret->type = ENVD_WATCH_START;
		break;
	case FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_FILESYSTEM:
		r = take_change(m->filesystem, ret, held, ret_name);
		break;
	case FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_KEEPALIVE:
		ret->type = ENVD_WATCH_KEEPALIVE;
		break;
	default:		/* of a newer agent: ignored */
		break;
	}
	unpacked_free(m);
	return r;
}

/* --- events --- */

/* Reads "tag, length" of a field that fills p to its end; the only shape output comes in. */
static bool only_field(const uint8_t **p, size_t *n, uint8_t tag)
{
	size_t at = 1, len = 0;
	unsigned shift = 0;

	if (*n < 2 || (*p)[0] != tag)
		return false;
	do {
		if (at == *n || shift > 21)
			return false;
		len |= (size_t)((*p)[at] & 0x7f) << shift;
		shift += 7;
	} while ((*p)[at++] & 0x80);
	if (*n - at != len)
		return false;
	*p += at;
	*n = len;
	return true;
}

/* Output is the bulk of all traffic: read where it lies, no copy, no allocation. event = 1,
 * data = 2, stdout = 1 | stderr = 2 | pty = 3, all with a length. */
static bool data_in_place(const uint8_t *p, size_t n, struct envd_event *ret)
{
	uint8_t tag;

	if (!only_field(&p, &n, 0x0a) || !only_field(&p, &n, 0x12) || n < 2)
		return false;
	tag = p[0];
	if ((tag != 0x0a && tag != 0x12 && tag != 0x1a) || !only_field(&p, &n, tag))
		return false;
	ret->type = ENVD_EVENT_DATA;
	ret->stream = (enum envd_data_stream)(tag >> 3);
	ret->data = p;
	ret->n = n;
	return true;
}

static void take_data(const Process__ProcessEvent__DataEvent *d, struct envd_event *ret)
{
	if (d->output_case == PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT__NOT_SET)
		return;
	ret->type = ENVD_EVENT_DATA;
	ret->stream = (enum envd_data_stream)d->output_case;	/* the field's number */
	ret->data = d->pty.data;				/* one union for all three */
	ret->n = d->pty.len;
}

static void take_end(const Process__ProcessEvent__EndEvent *e, struct envd_event *ret)
{
	ret->type = ENVD_EVENT_END;
	ret->exit_code = e->exit_code;
	ret->exited = e->exited;
	ret->status = e->status;
	if (e->_error_case)
		redact_text(e->error);
	ret->error = e->_error_case ? e->error : NULL;
}

int message_event(const uint8_t *p, size_t n, struct envd_event *ret, Process__StartResponse **ret_held)
{
	Process__StartResponse *m;
	int r;

	*ret_held = NULL;
	*ret = (struct envd_event){ 0 };
	if (data_in_place(p, n, ret))
		return 0;
	m = unpack(&process__start_response__descriptor, p, n, &r);
	if (!m)
		return r;
	*ret_held = m;
	if (!m->event)
		return 0;
	switch (m->event->event_case) {
	case PROCESS__PROCESS_EVENT__EVENT_START:
		ret->type = ENVD_EVENT_START;
		ret->pid = m->event->start->pid;
		break;
	case PROCESS__PROCESS_EVENT__EVENT_DATA:
		take_data(m->event->data, ret);
		break;
	case PROCESS__PROCESS_EVENT__EVENT_END:
		take_end(m->event->end, ret);
		break;
	case PROCESS__PROCESS_EVENT__EVENT_KEEPALIVE:
		ret->type = ENVD_EVENT_KEEPALIVE;
		break;
	default:		/* of a newer agent: ignored */
		break;
	}
	return 0;
}

void message_event_free(Process__StartResponse *held)
{
	unpacked_free(held);
}
