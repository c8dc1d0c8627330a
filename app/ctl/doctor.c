/* SPDX-License-Identifier: BSD-3-Clause */
/* Applies each rule of the table to each object of its scope. */
#include "doctor.h"

#include <stdio.h>
#include <string.h>

#include "sample.h"

/* @return the object of @p sample whose members are the objects of a scope, or NULL. */
static const json_t *find_objects(const json_t *sample, enum doctor_scope scope)
{
	switch (scope) {
	case DOCTOR_POOL:
		return sample_get(sample, "pools", NULL);
	case DOCTOR_WORKER:
		return sample_get(sample, "workers", "workers", NULL);
	case DOCTOR_LCORE:
		return sample_get(sample, "stages", NULL);
	case DOCTOR_PORT:
		return sample_get(sample, "ports", NULL);
	case DOCTOR_BUFFER:
		return sample_get(sample, "buffers", "buffers", NULL);
	case DOCTOR_THREAD:
		return sample_get(sample, "host", NULL);
	case DOCTOR_XDP:
		return sample_get(sample, "xdp", NULL);
	case DOCTOR_REFUSED:
		return sample_get(sample, "refused", "workers", NULL);
	default:
		return NULL;
	}
}

static void apply_rule(const struct doctor_rule *r, struct doctor_input *in, json_t *out)
{
	char cause[512] = "";

	in->cause = cause;
	in->len = sizeof(cause);
	if (r->is(in))
		json_array_append_new(out,
				      json_pack("{s:s, s:s, s:s, s:s}", "rule", r->name, "where",
						in->name, "cause", cause, "remedy", r->remedy));
}

static void apply_to_objects(const struct doctor_rule *r, struct doctor_input *in,
			     const json_t *before, const json_t *now, json_t *out)
{
	json_t *one;

	json_object_foreach ((json_t *)(uintptr_t)now, in->name, one) {
		if (!json_is_object(one))
			continue;
		in->now = one;
		in->before = json_object_get(before, in->name);
		apply_rule(r, in, out);
	}
}

static void apply_to_ranks(const struct doctor_rule *r, struct doctor_input *in, json_t *out)
{
	json_t *pool;

	json_object_foreach ((json_t *)(uintptr_t)sample_get(in->is, "loads", NULL), in->pool, pool)
		apply_to_objects(r, in, sample_get(in->was, "loads", in->pool, "ranks", NULL),
				 json_object_get(pool, "ranks"), out);
}

json_t *doctor_find(const json_t *was, const json_t *is, double patience_s)
{
	struct doctor_input in = {.was = was, .is = is, .patience_s = patience_s};
	json_t *out = json_array();

	in.seconds = sample_to_number(json_object_get(is, "at")) -
		     sample_to_number(json_object_get(was, "at"));
	if (!(in.seconds > 0))
		in.seconds = 0;
	for (const struct doctor_rule *r = doctor_rules; r->name != NULL; r++) {
		in.pool = "";
		if (r->scope == DOCTOR_ROUTER) {
			in.name = "";
			in.now = is;
			in.before = was;
			apply_rule(r, &in, out);
		} else if (r->scope == DOCTOR_RANK) {
			apply_to_ranks(r, &in, out);
		} else {
			apply_to_objects(r, &in, find_objects(was, r->scope),
					 find_objects(is, r->scope), out);
		}
	}
	return out;
}
