/* SPDX-License-Identifier: MIT */
/* The statements of each table, made from its description. Texts are heap; NULL without memory. */
#ifndef AB_DAEMON_STORE_SQL_H
#define AB_DAEMON_STORE_SQL_H

#include "daemon/store/table.h"

struct sqlite3_stmt;

char *sql_create(const struct table *t);
char *sql_put(const struct table *t);
char *sql_del(const struct table *t);	/* by its key */
char *sql_select(const struct table *t);
char *sql_get(const struct table *t);	/* by its key */
/* The current row of a statement of sql_select() or sql_get(); its texts belong to the statement. */
void sql_read(struct sqlite3_stmt *s, const struct table *t, union row *ret, struct row_check *ret_check);

#endif
