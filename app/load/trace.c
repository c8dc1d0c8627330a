/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int grow_array(void **mem, size_t n, size_t *room, size_t size)
{
	size_t want = *room == 0 ? 1024 : 2 * *room;
	void *p;

	if (n <= *room)
		return 0;
	while (want < n)
		want *= 2;
	p = reallocarray(*mem, want, size);
	if (p == NULL)
		return -ENOMEM;
	*mem = p;
	*room = want;
	return 0;
}

/* A number that fits 32 bits and is not negative. */
static int get_u32(const json_t *o, const char *key, uint32_t *out)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
		return -EBADMSG;
	*out = (uint32_t)json_integer_value(v);
	return 0;
}

static int take_ids(struct load_trace *t, struct load_trace_row *row, const json_t *ids,
		    size_t *room)
{
	int rc = grow_array((void **)&t->ids, t->n_ids + json_array_size(ids), room,
			    sizeof(*t->ids));

	if (rc < 0)
		return rc;
	row->first_id = (uint32_t)t->n_ids;
	row->n_ids = (uint32_t)json_array_size(ids);
	for (size_t i = 0; i < row->n_ids; i++) {
		const json_t *v = json_array_get(ids, i);

		if (!json_is_integer(v) || json_integer_value(v) < 0)
			return -EBADMSG;
		t->ids[t->n_ids] = (uint64_t)json_integer_value(v);
		if (t->ids[t->n_ids] > t->max_id)
			t->max_id = t->ids[t->n_ids];
		t->n_ids++;
	}
	return 0;
}

/* @return what is wrong with the object, or NULL. */
static const char *take_row(struct load_trace *t, const json_t *o, size_t *row_room,
			    size_t *id_room)
{
	const json_t *at = json_object_get(o, "timestamp"), *ids = json_object_get(o, "hash_ids");
	struct load_trace_row row = {0};

	if (!json_is_number(at) || json_number_value(at) < 0)
		return "timestamp must be a number of milliseconds";
	row.at_ms = json_number_value(at);
	if (t->n_rows > 0 && row.at_ms < t->rows[t->n_rows - 1].at_ms)
		return "timestamp is before that of the line above";
	if (get_u32(o, "input_length", &row.isl) < 0 || row.isl == 0)
		return "input_length must be a positive number of tokens";
	if (get_u32(o, "output_length", &row.osl) < 0)
		return "output_length must be a number of tokens";
	if (!json_is_array(ids))
		return "hash_ids must be an array";
	if ((uint64_t)json_array_size(ids) * LOAD_TRACE_ID_TOKENS + LOAD_TRACE_ID_TOKENS <= row.isl)
		return "hash_ids is too short for input_length";
	if (grow_array((void **)&t->rows, t->n_rows + 1, row_room, sizeof(*t->rows)) < 0)
		return "no memory";
	switch (take_ids(t, &row, ids, id_room)) {
	case 0:
		t->rows[t->n_rows++] = row;
		return NULL;
	case -ENOMEM:
		return "no memory";
	default:
		return "hash_ids must hold numbers from 0";
	}
}

static void spread_times(struct load_trace *t)
{
	size_t i = 0;

	while (i < t->n_rows) {
		double at = t->rows[i].at_ms, next;
		size_t end = i;

		while (end < t->n_rows && t->rows[end].at_ms <= at)
			end++;
		next = end < t->n_rows ? t->rows[end].at_ms : t->length_ms;
		for (size_t k = i; k < end; k++)
			t->rows[k].at_ms = at + (next - at) * (double)(k - i) / (double)(end - i);
		i = end;
	}
}

static int read_lines(struct load_trace *t, FILE *in, const char *path, char *err, size_t errlen)
{
	size_t row_room = 0, id_room = 0, len = 0;
	char *line = NULL;
	int rc = 0;

	for (unsigned int no = 1; rc == 0 && getline(&line, &len, in) >= 0; no++) {
		json_error_t je;
		json_t *o;
		const char *why;

		if (line[strspn(line, " \t\r\n")] == '\0')
			continue;
		o = json_loads(line, 0, &je);
		why = o == NULL ? je.text : take_row(t, o, &row_room, &id_room);
		if (why != NULL) {
			snprintf(err, errlen, "%s:%u: %s", path, no, why);
			rc = -EBADMSG;
		}
		json_decref(o);
	}
	free(line);
	if (rc == 0 && ferror(in))
		rc = -EIO;
	return rc;
}

int load_trace_read(struct load_trace *t, const char *path, int keep_bursts, char *err,
		    size_t errlen)
{
	FILE *in = fopen(path, "re");
	int rc;

	memset(t, 0, sizeof(*t));
	if (in == NULL) {
		rc = -errno;
		snprintf(err, errlen, "%s: %s", path, strerror(-rc));
		return rc;
	}
	rc = read_lines(t, in, path, err, errlen);
	fclose(in);
	if (rc == 0 && t->n_rows == 0) {
		snprintf(err, errlen, "%s: no request in it", path);
		rc = -EBADMSG;
	}
	if (rc < 0) {
		load_trace_free(t);
		return rc;
	}
	t->length_ms = t->rows[t->n_rows - 1].at_ms;
	t->length_ms += t->n_rows > 1 ? t->length_ms / (double)(t->n_rows - 1) : 1.0;
	if (!keep_bursts)
		spread_times(t);
	return 0;
}

void load_trace_free(struct load_trace *t)
{
	free(t->rows);
	free(t->ids);
	memset(t, 0, sizeof(*t));
}
