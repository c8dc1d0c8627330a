/* SPDX-License-Identifier: BSD-3-Clause */
#include "trail.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "snap.h"

/* ---- curves ---- */

/* Of requests of every pool; a rate, or how many there are. */
static const struct {
	const char *name, *counter;
	bool rate;
} curves[] = {
	{"asked", "routes", true},	  {"done", "finished", true},
	{"refused", "rejected", true},	  {"predicted", "predicted_cached", true},
	{"found", "actual_cached", true}, {"waiting", "waiting", false},
	{"live", "live", false},
};

static double sum(const json_t *look, const char *counter)
{
	const char *name;
	double n = 0;
	json_t *p;

	json_object_foreach ((json_t *)(uintptr_t)snap_at(look, "pools", NULL), name, p)
		n += snap_number(snap_at(p, "requests", counter, NULL));
	return n;
}

static double number(const json_t *look, const char *part, const char *name)
{
	return snap_number(snap_at(look, part, name, NULL));
}

static void add_point(struct trail *tr, const json_t *was, const json_t *is, double t)
{
	const double s =
		snap_number(json_object_get(is, "at")) - snap_number(json_object_get(was, "at"));
	json_t *p;

	/* Counters of another life are no growth. */
	if (s <= 0 || number(was, "info", "epoch") != number(is, "info", "epoch"))
		return;
	p = json_pack("{s:f}", "t", t);
	for (size_t i = 0; i < sizeof(curves) / sizeof(curves[0]); i++) {
		const double now = sum(is, curves[i].counter);
		const double by = now - sum(was, curves[i].counter);

		json_object_set_new(p, curves[i].name,
				    json_real(!curves[i].rate ? now
					      : by > 0	      ? by / s
							      : 0));
	}
	json_array_append_new(tr->points, p);
	if (json_array_size(tr->points) > TRAIL_POINTS)
		json_array_remove(tr->points, 0);
}

/* ---- states ---- */

static void put_state(json_t *all, const char *kind, const char *name, const char *state)
{
	char key[300];

	snprintf(key, sizeof(key), "%s%s%s", kind, *name != '\0' ? " " : "", name);
	json_object_set_new(all, key, json_string(state));
}

static json_t *states_of(const json_t *is)
{
	json_t *all = json_object(), *v;
	const char *name;
	char life[64];

	snprintf(life, sizeof(life), "running, life %.0f", number(is, "info", "epoch"));
	put_state(all, "router", "", life);
	json_object_foreach ((json_t *)(uintptr_t)snap_at(is, "workers", "workers", NULL), name, v)
		put_state(all, "worker", name, json_string_value(json_object_get(v, "state")));
	json_object_foreach ((json_t *)(uintptr_t)snap_at(is, "pools", NULL), name, v)
		if (json_is_string(json_object_get(v, "prefill")))
			put_state(all, "prefill pool", name,
				  json_string_value(json_object_get(v, "prefill")));
	json_object_foreach ((json_t *)(uintptr_t)snap_at(is, "ports", NULL), name, v)
		if (json_object_get(v, "link_up") != NULL)
			put_state(all, "link of port", name,
				  number(v, "link_up", NULL) != 0 ? "up" : "down");
	return all;
}

static void add_change(struct trail *tr, double t, const char *what, json_t *was, json_t *is)
{
	json_array_insert_new(
		tr->changes, 0,
		json_pack("{s:f, s:s, s:O?, s:O?}", "t", t, "what", what, "was", was, "is", is));
	if (json_array_size(tr->changes) > TRAIL_CHANGES)
		json_array_remove(tr->changes, TRAIL_CHANGES);
}

static void compare(struct trail *tr, json_t *states, double t)
{
	const char *what;
	json_t *v;

	json_object_foreach (tr->states, what, v)
		if (json_object_get(states, what) == NULL)
			add_change(tr, t, what, v, NULL);
	json_object_foreach (states, what, v) {
		json_t *was = json_object_get(tr->states, what);

		if (!json_equal(was, v))
			add_change(tr, t, what, was, v);
	}
}

void trail_add(struct trail *tr, const json_t *was, const json_t *is, double t)
{
	json_t *states;

	if (tr->points == NULL) {
		tr->points = json_array();
		tr->changes = json_array();
	}
	if (is == NULL) { /* what its workers are doing nobody knows */
		states = json_pack("{s:s}", "router", "does not answer");
		if (tr->states != NULL && !tr->gone)
			add_change(tr, t, "router", json_object_get(tr->states, "router"),
				   json_object_get(states, "router"));
	} else {
		states = states_of(is);
		add_point(tr, was, is, t);
		if (tr->gone)
			add_change(tr, t, "router", json_object_get(tr->states, "router"),
				   json_object_get(states, "router"));
		else if (tr->states != NULL)
			compare(tr, states, t);
	}
	json_decref(tr->states);
	tr->states = states;
	tr->gone = is == NULL;
}

void trail_clear(struct trail *tr)
{
	json_decref(tr->points);
	json_decref(tr->changes);
	json_decref(tr->states);
	memset(tr, 0, sizeof(*tr));
}
