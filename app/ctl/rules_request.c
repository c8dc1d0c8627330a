/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules about single requests: the oldest in flight of every pool, as "oldest" tells them. */
#include "rules_pvt.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snap.h"

static const char *text_of(const json_t *v, const char *name)
{
	const char *s = json_string_value(json_object_get(v, name));

	return s != NULL ? s : "";
}

static double number_of(const json_t *v, const char *name)
{
	return snap_number(json_object_get(v, name));
}

static const json_t *oldest_of(const json_t *look, const char *pool)
{
	return snap_at(look, "oldest", pool, "requests", NULL);
}

/* "0x3e9" of "0x00000000000003e9/0x0000000000000007", as people type it. */
static const char *short_id(const char *key, char *buf, size_t len)
{
	const char *p = strncmp(key, "0x", 2) == 0 ? key + 2 : key;
	const size_t n = strcspn(p, "/"), zeros = strspn(p, "0");

	p += zeros < n ? zeros : n - (n > 0);
	snprintf(buf, len, "0x%.*s", (int)strcspn(p, "/"), p);
	return buf;
}

/* ---- a drain that does not end ---- */

bool rule_drain_stuck(const struct doctor_look *l)
{
	const double ms = doctor_now(l, "state_ms"), left = doctor_now(l, "bookings");
	const double worker = strtod(l->name, NULL);
	char which[200] = "", id[40];
	const char *key;
	json_t *r;

	if (strcmp(text_of(l->now, "state"), "draining") != 0 || left == 0 ||
	    ms <= l->patience_s * 1000)
		return false;
	json_object_foreach ((json_t *)(uintptr_t)oldest_of(l->is, text_of(l->now, "pool")), key,
			     r) {
		if (json_object_get(r, "worker") == NULL || number_of(r, "worker") != worker)
			continue;
		snprintf(which, sizeof(which), ", %s%s for %.0f s%s",
			 doctor_word(left, "", "the oldest of them "),
			 short_id(key, id, sizeof(id)), number_of(r, "age_ms") / 1000,
			 number_of(r, "booked") != 0
				 ? ", run by its client (/pick), who has not said that it is over"
				 : "");
		break;
	}
	return doctor_say(l, "worker %s drains for %.0f s, %.0f %s left there%s", l->name,
			  ms / 1000, left, doctor_word(left, "request is", "requests are"), which);
}

/* ---- requests that nobody works at ---- */

#define UNKNOWN_MS 5000 /* what an agent says of its engine may be seconds old */

/* Of both looks: the engine of its rank has no request at all. */
static bool engine_is_idle(const struct doctor_look *l, const json_t *r)
{
	const json_t *looks[] = {l->was, l->is};
	char rank[64];

	snprintf(rank, sizeof(rank), "%.0f/%.0f", number_of(r, "worker"), number_of(r, "dp_rank"));
	for (int i = 0; i < 2; i++) {
		const json_t *has = snap_at(looks[i], "events", l->name, "ranks", rank,
					    "engine_requests", NULL);

		if (has == NULL || snap_number(has) > 0)
			return false;
	}
	return true;
}

static bool is_unknown(const struct doctor_look *l, const char *key, const json_t *r)
{
	return json_object_get(oldest_of(l->was, l->name), key) != NULL &&
	       (strcmp(text_of(r, "state"), "running") == 0 ||
		strcmp(text_of(r, "state"), "sent") == 0) &&
	       number_of(r, "booked") == 0 &&
	       number_of(r, "age_ms") > fmin(UNKNOWN_MS, l->patience_s * 1000) &&
	       engine_is_idle(l, r);
}

bool rule_request_unknown(const struct doctor_look *l)
{
	const char *key;
	char id[40];
	json_t *r;

	json_object_foreach ((json_t *)(uintptr_t)oldest_of(l->is, l->name), key, r)
		if (is_unknown(l, key, r))
			return doctor_say(l,
					  "pool %s: request %s is at rank %.0f/%.0f for %.0f s, "
					  "whose engine has none",
					  l->name, short_id(key, id, sizeof(id)),
					  number_of(r, "worker"), number_of(r, "dp_rank"),
					  number_of(r, "age_ms") / 1000);
	return false;
}

/* Old, and not a token more than before. */
bool rule_request_stands(const struct doctor_look *l)
{
	unsigned int n = 0;
	const char *key, *first = NULL;
	char id[40], where[64] = "", others[32] = "";
	double age = 0;
	json_t *r;

	json_object_foreach ((json_t *)(uintptr_t)oldest_of(l->is, l->name), key, r) {
		const json_t *before = json_object_get(oldest_of(l->was, l->name), key);

		if (before == NULL || number_of(r, "age_ms") <= l->patience_s * 1000 ||
		    number_of(r, "booked") != 0 ||
		    number_of(r, "tokens") != number_of(before, "tokens") || is_unknown(l, key, r))
			continue;
		n++;
		if (first != NULL)
			continue;
		first = key;
		age = number_of(r, "age_ms") / 1000;
		if (json_object_get(r, "worker") != NULL)
			snprintf(where, sizeof(where), " at rank %.0f/%.0f", number_of(r, "worker"),
				 number_of(r, "dp_rank"));
		else
			snprintf(where, sizeof(where), " (%s)", text_of(r, "state"));
	}
	if (n > 1)
		snprintf(others, sizeof(others), ", and %u other%s", n - 1, n > 2 ? "s" : "");
	return n > 0 &&
	       doctor_say(l, "pool %s: request %s%s is in flight for %.0f s without progress%s",
			  l->name, short_id(first, id, sizeof(id)), where, age, others);
}
