/* SPDX-License-Identifier: MIT */
/* Intrusive doubly linked list. A node that is on no list points to itself. */
#ifndef AB_PROTO_BASE_LIST_H
#define AB_PROTO_BASE_LIST_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_is_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_(struct list *prev, struct list *n, struct list *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void list_add_tail(struct list *head, struct list *n)
{
	list_insert_(head->prev, n, head);
}

static inline void list_add_head(struct list *head, struct list *n)
{
	list_insert_(head, n, head->next);
}

/* Safe on a node that is on no list but was initialised. */
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* Moves all nodes of `from` to the empty list `to`. */
static inline void list_take(struct list *to, struct list *from)
{
	list_init(to);
	if (list_is_empty(from))
		return;
	*to = *from;
	to->next->prev = to;
	to->prev->next = to;
	list_init(from);
}

#define list_entry(n, type, member)	container_of(n, type, member)
#define list_first(head, type, member)                                                             \
	(list_is_empty(head) ? NULL : list_entry((head)->next, type, member))

#define list_for_each(n, head) for (struct list *n = (head)->next; n != (head); n = n->next)
/* The current node may be removed inside; no other may. */
#define list_for_each_safe(n, head)                                                                \
	for (struct list *n = (head)->next, *n##_next = n->next; n != (head);                      \
	     n = n##_next, n##_next = n->next)

#endif
