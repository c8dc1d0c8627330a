/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands that take several samples: doctor, top, watch. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"
#include "doctor.h"
#include "sample.h"

/* @return a sample; or NULL, with *status. */
static json_t *take_sample(struct ctl *c, enum ctl_status *status)
{
	char err[256];
	json_t *s;

	*status = ctl_open(c);
	if (*status != CTL_OK)
		return NULL;
	s = sample_take(&c->t, err, sizeof(err));
	if (s == NULL)
		*status = ctl_report(CTL_DOWN, "%s", err);
	return s;
}

/* ---- doctor ---- */

static void print_findings(const struct ctl *c, const json_t *found)
{
	size_t i;
	json_t *f;

	if (c->opt.json) {
		ctl_print(c, found, NULL);
		return;
	}
	json_array_foreach ((json_t *)(uintptr_t)found, i, f)
		printf("%s: %s. %s\n", json_string_value(json_object_get(f, "rule")),
		       json_string_value(json_object_get(f, "cause")),
		       json_string_value(json_object_get(f, "remedy")));
	if (json_array_size(found) == 0)
		printf("nothing is wrong\n");
}

enum ctl_status ctl_doctor(struct ctl *c, int argc, char **argv)
{
	const double seconds = c->opt.seconds > 0 ? c->opt.seconds : 10;
	enum ctl_status status;
	json_t *was = take_sample(c, &status), *is = NULL, *found;

	(void)argc;
	(void)argv;
	if (was == NULL)
		return status;
	fprintf(stderr, "kvroute-ctl: second sample in %.3g s; Ctrl-C takes it now\n", seconds);
	ctl_wait(seconds);
	is = take_sample(c, &status);
	if (is != NULL) {
		found = doctor_find(was, is, c->opt.patience);
		print_findings(c, found);
		status = json_array_size(found) == 0 ? CTL_OK : CTL_REFUSED;
		json_decref(found);
	}
	json_decref(was);
	json_decref(is);
	return status;
}

/* ---- top ---- */

enum ctl_status ctl_top(struct ctl *c, int argc, char **argv)
{
	const double seconds = c->opt.seconds > 0 ? c->opt.seconds : 1;
	const bool screen = isatty(STDOUT_FILENO) != 0 && !c->opt.json;
	enum ctl_status status;
	json_t *was = take_sample(c, &status), *is;

	(void)argc;
	(void)argv;
	for (uint32_t n = 0; was != NULL && (c->opt.count == 0 || n < c->opt.count); n++) {
		if (!ctl_wait(seconds))
			break;
		is = take_sample(c, &status);
		if (is == NULL)
			break;
		if (screen)
			printf("\033[H\033[J");
		if (c->opt.json)
			ctl_print(c, is, NULL);
		else
			top_print(was, is, stdout);
		if (fflush(stdout) != 0)
			break; /* output closed */
		json_decref(was);
		was = is;
	}
	json_decref(was);
	return status;
}

/* ---- watch ---- */

#define MAX_POOLS 64u

static long long parse_number(const char *key)
{
	return strtoll(key, NULL, 10);
}

static void print_decision(const char *pool, const char *number, const json_t *d)
{
	const char *result = json_string_value(json_object_get(d, "result"));
	const json_t *worker = json_object_get(d, "worker");

	printf("%s %s  request 0x%" PRIx64 ": %s", pool, number,
	       sample_to_id(json_object_get(d, "id")), result != NULL ? result : "?");
	if (worker != NULL)
		printf(" to %.0f rank %.0f  cost %.3f  overlap %.1f of %.0f blocks",
		       sample_to_number(worker), sample_to_number(json_object_get(d, "dp_rank")),
		       sample_to_number(json_object_get(d, "cost")),
		       sample_to_number(json_object_get(d, "overlap_blocks")),
		       sample_to_number(json_object_get(d, "required_blocks")));
	printf("\n");
}

/* Print the decisions with a number above *seen, oldest first. */
static void print_new(const struct ctl *c, const char *pool, const json_t *list, long long *seen)
{
	long long at = *seen, least;

	for (;;) {
		const char *key, *next = NULL;
		json_t *d;

		least = 0;
		json_object_foreach ((json_t *)(uintptr_t)list, key, d)
			if (parse_number(key) > at && (next == NULL || parse_number(key) < least)) {
				next = key;
				least = parse_number(key);
			}
		if (next == NULL)
			break;
		at = least;
		d = json_object_get(list, next);
		if (c->opt.json) {
			json_dumpf(d, stdout, JSON_COMPACT);
			printf("\n");
		} else {
			print_decision(pool, next, d);
		}
	}
	*seen = at;
}

enum ctl_status ctl_watch(struct ctl *c, int argc, char **argv)
{
	const double seconds = c->opt.seconds > 0 ? c->opt.seconds : 1;
	enum ctl_status status = CTL_OK;
	long long seen[MAX_POOLS];
	json_t *answer, *pools, *v;
	const char *name;

	if (strcmp(argv[0], "decisions") != 0)
		return ctl_report(CTL_USAGE, "watch: got \"%s\", allowed: decisions", argv[0]);
	answer = ctl_query(c, "/kvroute/pools", "pools", &status);
	pools = json_object_get(answer, "pools");
	if (argc == 2 && pools != NULL && json_object_get(pools, argv[1]) == NULL)
		status = ctl_report(CTL_REFUSED, "pool %s does not exist", argv[1]);
	memset(seen, 0xff, sizeof(seen)); /* -1: none */
	for (uint32_t n = 0; status == CTL_OK && (c->opt.count == 0 || n < c->opt.count); n++) {
		unsigned int i = 0;

		if (n != 0 && !ctl_wait(seconds))
			break;
		json_object_foreach (pools, name, v) {
			char command[128];
			json_t *d;

			if (i == MAX_POOLS || (argc == 2 && strcmp(name, argv[1]) != 0))
				continue;
			snprintf(command, sizeof(command), "/kvroute/decisions,%.64s", name);
			d = ctl_query(c, command, NULL, &status);
			if (d == NULL)
				break;
			print_new(c, name, json_object_get(d, "decisions"), &seen[i++]);
			json_decref(d);
		}
		if (fflush(stdout) != 0)
			break;
	}
	json_decref(answer);
	return status;
}
