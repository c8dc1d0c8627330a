/* SPDX-License-Identifier: BSD-3-Clause */
#include "doctor.h"

#include <stdio.h>
#include <string.h>

#include "snap.h"

/* Where the objects of a scope stand in a look. */
static const json_t *list_of(const json_t *snap, enum doctor_scope scope)
{
	switch (scope) {
	case DOCTOR_POOL:
		return snap_at(snap, "pools", NULL);
	case DOCTOR_WORKER:
		return snap_at(snap, "workers", "workers", NULL);
	case DOCTOR_LCORE:
		return snap_at(snap, "stages", NULL);
	case DOCTOR_PORT:
		return snap_at(snap, "ports", NULL);
	case DOCTOR_BUFFER:
		return snap_at(snap, "buffers", "buffers", NULL);
	case DOCTOR_THREAD:
		return snap_at(snap, "host", NULL);
	case DOCTOR_XDP:
		return snap_at(snap, "xdp", NULL);
	case DOCTOR_REFUSED:
		return snap_at(snap, "refused", "workers", NULL);
	default:
		return NULL;
	}
}

static void ask(const struct doctor_rule *r, struct doctor_look *l, json_t *out)
{
	char says[512] = "";

	l->says = says;
	l->len = sizeof(says);
	if (r->is(l))
		json_array_append_new(out,
				      json_pack("{s:s, s:s, s:s, s:s}", "rule", r->name, "where",
						l->name, "says", says, "remedy", r->remedy));
}

static void ask_each(const struct doctor_rule *r, struct doctor_look *l, const json_t *before,
		     const json_t *now, json_t *out)
{
	json_t *one;

	json_object_foreach ((json_t *)(uintptr_t)now, l->name, one) {
		if (!json_is_object(one))
			continue;
		l->now = one;
		l->before = json_object_get(before, l->name);
		ask(r, l, out);
	}
}

static void ask_ranks(const struct doctor_rule *r, struct doctor_look *l, json_t *out)
{
	json_t *pool;

	json_object_foreach ((json_t *)(uintptr_t)snap_at(l->is, "loads", NULL), l->pool, pool)
		ask_each(r, l, snap_at(l->was, "loads", l->pool, "ranks", NULL),
			 json_object_get(pool, "ranks"), out);
}

json_t *doctor_findings(const json_t *was, const json_t *is, double patience_s)
{
	struct doctor_look l = {.was = was, .is = is, .patience_s = patience_s};
	json_t *out = json_array();

	l.seconds =
		snap_number(json_object_get(is, "at")) - snap_number(json_object_get(was, "at"));
	if (!(l.seconds > 0))
		l.seconds = 0;
	for (const struct doctor_rule *r = doctor_rules; r->name != NULL; r++) {
		l.pool = "";
		if (r->scope == DOCTOR_ROUTER) {
			l.name = "";
			l.now = is;
			l.before = was;
			ask(r, &l, out);
		} else if (r->scope == DOCTOR_RANK) {
			ask_ranks(r, &l, out);
		} else {
			ask_each(r, &l, list_of(was, r->scope), list_of(is, r->scope), out);
		}
	}
	return out;
}
