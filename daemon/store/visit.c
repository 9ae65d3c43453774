/* SPDX-License-Identifier: MIT */
/* Calls the function of a visitor that belongs to a table. */
#include "daemon/store/store.h"
#include "daemon/store/table.h"

bool store_wants(const struct store_visitor *v, enum row_table table)
{
	switch (table) {
#define TABLE_BEGIN(table)	\
	case ROW_TABLE_##table: \
		return v->table != NULL;
#include "daemon/store/rows/tables.def"
	case ROW_TABLES:
		break;
	}
	return false;
}

void store_visit(const struct store_visitor *v, enum row_table table, const union row *row)
{
	switch (table) {
#define TABLE_BEGIN(table)	\
	case ROW_TABLE_##table: \
		v->table(&row->table, v->user); \
		break;
#include "daemon/store/rows/tables.def"
	case ROW_TABLES:
		break;
	}
}
