/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules about single requests: the oldest in flight of every pool (/kvroute/oldest). */
#include "rules_pvt.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

static const char *get_text(const json_t *v, const char *name)
{
	const char *s = json_string_value(json_object_get(v, name));

	return s != NULL ? s : "";
}

static double get_number(const json_t *v, const char *name)
{
	return sample_to_number(json_object_get(v, name));
}

static const json_t *get_oldest(const json_t *sample, const char *pool)
{
	return sample_get(sample, "oldest", pool, "requests", NULL);
}

/* "0x00000000000003e9/0x0000000000000007" becomes "0x3e9". */
static const char *shorten_id(const char *key, char *buf, size_t len)
{
	const char *p = strncmp(key, "0x", 2) == 0 ? key + 2 : key;
	const size_t n = strcspn(p, "/"), zeros = strspn(p, "0");

	p += zeros < n ? zeros : n - (n > 0);
	snprintf(buf, len, "0x%.*s", (int)strcspn(p, "/"), p);
	return buf;
}

/* ---- drains ---- */

bool rule_drain_stuck(const struct doctor_input *in)
{
	const double ms = doctor_get_number(in, "state_ms"),
		     left = doctor_get_number(in, "bookings");
	const double worker = strtod(in->name, NULL);
	char which[200] = "", id[40];
	const char *key;
	json_t *r;

	if (strcmp(get_text(in->now, "state"), "draining") != 0 || left == 0 ||
	    ms <= in->patience_s * 1000)
		return false;
	json_object_foreach ((json_t *)(uintptr_t)get_oldest(in->is, get_text(in->now, "pool")),
			     key, r) {
		if (json_object_get(r, "worker") == NULL || get_number(r, "worker") != worker)
			continue;
		snprintf(which, sizeof(which), ", %s%s for %.0f s%s",
			 doctor_pick_word(left, "", "the oldest "), shorten_id(key, id, sizeof(id)),
			 get_number(r, "age_ms") / 1000,
			 get_number(r, "booked") != 0
				 ? ", a booking (/pick) that its client has not ended"
				 : "");
		break;
	}
	return doctor_report(in, "worker %s has been draining for %.0f s, %.0f %s left%s", in->name,
			     ms / 1000, left, doctor_pick_word(left, "request is", "requests are"),
			     which);
}

/* ---- requests without progress ---- */

#define UNKNOWN_MS 5000 /* age of an agent's report about its engine, at most */

/* In both samples the engine of the rank has no request at all. */
static bool engine_is_idle(const struct doctor_input *in, const json_t *r)
{
	const json_t *samples[] = {in->was, in->is};
	char rank[64];

	snprintf(rank, sizeof(rank), "%.0f/%.0f", get_number(r, "worker"),
		 get_number(r, "dp_rank"));
	for (int i = 0; i < 2; i++) {
		const json_t *has = sample_get(samples[i], "events", in->name, "ranks", rank,
					       "engine_requests", NULL);

		if (has == NULL || sample_to_number(has) > 0)
			return false;
	}
	return true;
}

static bool is_unknown(const struct doctor_input *in, const char *key, const json_t *r)
{
	return json_object_get(get_oldest(in->was, in->name), key) != NULL &&
	       (strcmp(get_text(r, "state"), "running") == 0 ||
		strcmp(get_text(r, "state"), "sent") == 0) &&
	       get_number(r, "booked") == 0 &&
	       get_number(r, "age_ms") > fmin(UNKNOWN_MS, in->patience_s * 1000) &&
	       engine_is_idle(in, r);
}

bool rule_request_unknown(const struct doctor_input *in)
{
	const char *key;
	char id[40];
	json_t *r;

	json_object_foreach ((json_t *)(uintptr_t)get_oldest(in->is, in->name), key, r)
		if (is_unknown(in, key, r))
			return doctor_report(
				in,
				"pool %s: request %s has been at rank %.0f/%.0f for %.0f s, but the engine has no requests",
				in->name, shorten_id(key, id, sizeof(id)), get_number(r, "worker"),
				get_number(r, "dp_rank"), get_number(r, "age_ms") / 1000);
	return false;
}

/* Older than the limit, and no token since the first sample. */
bool rule_request_stuck(const struct doctor_input *in)
{
	unsigned int n = 0;
	const char *key, *first = NULL;
	char id[40], where[64] = "", others[32] = "";
	double age = 0;
	json_t *r;

	json_object_foreach ((json_t *)(uintptr_t)get_oldest(in->is, in->name), key, r) {
		const json_t *before = json_object_get(get_oldest(in->was, in->name), key);

		if (before == NULL || get_number(r, "age_ms") <= in->patience_s * 1000 ||
		    get_number(r, "booked") != 0 ||
		    get_number(r, "tokens") != get_number(before, "tokens") ||
		    is_unknown(in, key, r))
			continue;
		n++;
		if (first != NULL)
			continue;
		first = key;
		age = get_number(r, "age_ms") / 1000;
		if (json_object_get(r, "worker") != NULL)
			snprintf(where, sizeof(where), " at rank %.0f/%.0f",
				 get_number(r, "worker"), get_number(r, "dp_rank"));
		else
			snprintf(where, sizeof(where), " (%s)", get_text(r, "state"));
	}
	if (n > 1)
		snprintf(others, sizeof(others), ", and %u other%s", n - 1, n > 2 ? "s" : "");
	return n > 0 &&
	       doctor_report(
		       in, "pool %s: request %s%s has been in flight for %.0f s without progress%s",
		       in->name, shorten_id(first, id, sizeof(id)), where, age, others);
}
