/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares each sample with the one before: growth becomes a point of the curves, a different state
 * becomes a change. */
#include "history.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sample.h"

/* ---- curves ---- */

/* Curves: a counter of the requests of all pools, as a rate or as a number. */
static const struct {
	const char *name, *counter;
	bool rate;
} curves[] = {
	{"received", "routes", true},	  {"finished", "finished", true},
	{"rejected", "rejected", true},	  {"predicted", "predicted_cached", true},
	{"found", "actual_cached", true}, {"waiting", "waiting", false},
	{"in flight", "live", false},
};

static double sum_pools(const json_t *sample, const char *counter)
{
	const char *name;
	double n = 0;
	json_t *p;

	json_object_foreach ((json_t *)(uintptr_t)sample_get(sample, "pools", NULL), name, p)
		n += sample_to_number(sample_get(p, "requests", counter, NULL));
	return n;
}

static double get_number(const json_t *sample, const char *part, const char *name)
{
	return sample_to_number(sample_get(sample, part, name, NULL));
}

static void add_point(struct history *history, const json_t *was, const json_t *is, double t)
{
	const double s = sample_to_number(json_object_get(is, "at")) -
			 sample_to_number(json_object_get(was, "at"));
	json_t *p;

	/* Counters of different epochs cannot be compared. */
	if (s <= 0 || get_number(was, "info", "epoch") != get_number(is, "info", "epoch"))
		return;
	p = json_pack("{s:f}", "t", t);
	for (size_t i = 0; i < sizeof(curves) / sizeof(curves[0]); i++) {
		const double now = sum_pools(is, curves[i].counter);
		const double by = now - sum_pools(was, curves[i].counter);

		json_object_set_new(p, curves[i].name,
				    json_real(!curves[i].rate ? now
					      : by > 0	      ? by / s
							      : 0));
	}
	json_array_append_new(history->points, p);
	if (json_array_size(history->points) > HISTORY_POINTS)
		json_array_remove(history->points, 0);
}

/* ---- states ---- */

static void add_state(json_t *all, const char *kind, const char *name, const char *state)
{
	char key[300];

	snprintf(key, sizeof(key), "%s%s%s", kind, *name != '\0' ? " " : "", name);
	json_object_set_new(all, key, json_string(state));
}

static json_t *list_states(const json_t *is)
{
	json_t *all = json_object(), *v;
	const char *name;
	char epoch[64];

	snprintf(epoch, sizeof(epoch), "running, epoch %.0f", get_number(is, "info", "epoch"));
	add_state(all, "router", "", epoch);
	json_object_foreach ((json_t *)(uintptr_t)sample_get(is, "workers", "workers", NULL), name,
			     v)
		add_state(all, "worker", name, json_string_value(json_object_get(v, "state")));
	json_object_foreach ((json_t *)(uintptr_t)sample_get(is, "pools", NULL), name, v)
		if (json_is_string(json_object_get(v, "prefill")))
			add_state(all, "prefill pool", name,
				  json_string_value(json_object_get(v, "prefill")));
	json_object_foreach ((json_t *)(uintptr_t)sample_get(is, "ports", NULL), name, v)
		if (json_object_get(v, "link_up") != NULL)
			add_state(all, "link of port", name,
				  get_number(v, "link_up", NULL) != 0 ? "up" : "down");
	return all;
}

static void add_change(struct history *history, double t, const char *what, json_t *was, json_t *is)
{
	json_array_insert_new(
		history->changes, 0,
		json_pack("{s:f, s:s, s:O?, s:O?}", "t", t, "what", what, "was", was, "is", is));
	if (json_array_size(history->changes) > HISTORY_CHANGES)
		json_array_remove(history->changes, HISTORY_CHANGES);
}

static void add_changes(struct history *history, json_t *states, double t)
{
	const char *what;
	json_t *v;

	json_object_foreach (history->states, what, v)
		if (json_object_get(states, what) == NULL)
			add_change(history, t, what, v, NULL);
	json_object_foreach (states, what, v) {
		json_t *was = json_object_get(history->states, what);

		if (!json_equal(was, v))
			add_change(history, t, what, was, v);
	}
}

void history_add(struct history *history, const json_t *was, const json_t *is, double t)
{
	json_t *states;

	if (history->points == NULL) {
		history->points = json_array();
		history->changes = json_array();
	}
	if (is == NULL) { /* the states of its workers are unknown */
		states = json_pack("{s:s}", "router", "does not answer");
		if (history->states != NULL && !history->gone)
			add_change(history, t, "router", json_object_get(history->states, "router"),
				   json_object_get(states, "router"));
	} else {
		states = list_states(is);
		add_point(history, was, is, t);
		if (history->gone)
			add_change(history, t, "router", json_object_get(history->states, "router"),
				   json_object_get(states, "router"));
		else if (history->states != NULL)
			add_changes(history, states, t);
	}
	json_decref(history->states);
	history->states = states;
	history->gone = is == NULL;
}

void history_clear(struct history *history)
{
	json_decref(history->points);
	json_decref(history->changes);
	json_decref(history->states);
	memset(history, 0, sizeof(*history));
}
