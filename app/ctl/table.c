/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the form by the shape of the JSON value, recursively. A wide table with few rows is
 * transposed. */
#include "table.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 64u
#define NAME	    64u
#define LINE	    140u /* wider tables with fewer rows than columns are transposed */

struct column {
	char name[NAME];
	int width;
	bool text; /* aligned left */
};

struct columns {
	struct column c[MAX_COLUMNS];
	size_t n;
	int key; /* width of the row names */
};

static bool is_plain(const json_t *v)
{
	return !json_is_object(v) && !json_is_array(v);
}

static const char *format_value(const json_t *v, char *buf, size_t len)
{
	if (json_is_string(v))
		snprintf(buf, len, "%s", json_string_value(v));
	else if (json_is_integer(v))
		snprintf(buf, len, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v))
		snprintf(buf, len, "%.3f", json_real_value(v));
	else if (json_is_boolean(v))
		snprintf(buf, len, "%s", json_is_true(v) ? "yes" : "no");
	else
		snprintf(buf, len, "-");
	return buf;
}

/* Write a list in one line. Parts of one long text end in a blank, comma or slash and are joined
 * without a blank. */
static const char *format_cell(const json_t *v, char *buf, size_t len)
{
	const char *between = "";
	size_t n = 0, i;
	json_t *part;

	if (!json_is_array(v))
		return format_value(v, buf, len);
	buf[0] = '\0';
	json_array_foreach ((json_t *)(uintptr_t)v, i, part) {
		char word[256];

		format_value(part, word, sizeof(word));
		if (n < len)
			n += (size_t)snprintf(buf + n, len - n, "%s%s", between, word);
		between =
			word[0] != '\0' && strchr(" ,/", word[strlen(word) - 1]) != NULL ? "" : " ";
	}
	return buf;
}

/* @return true if each member is an object of values: a row of a table. */
static bool is_rows(const json_t *v)
{
	const char *key, *name;
	json_t *row, *value;

	if (json_object_size(v) == 0)
		return false;
	json_object_foreach ((json_t *)(uintptr_t)v, key, row) {
		if (!json_is_object(row))
			return false;
		json_object_foreach (row, name, value)
			if (json_is_object(value))
				return false;
	}
	return true;
}

static struct column *find_column(struct columns *cs, const char *name, bool add)
{
	for (size_t i = 0; i < cs->n; i++)
		if (strcmp(cs->c[i].name, name) == 0)
			return &cs->c[i];
	if (!add || cs->n == MAX_COLUMNS)
		return NULL;
	snprintf(cs->c[cs->n].name, NAME, "%s", name);
	cs->c[cs->n].width = (int)strlen(cs->c[cs->n].name);
	return &cs->c[cs->n++];
}

static void measure_columns(struct columns *cs, const json_t *rows, const char *wanted)
{
	char list[512], *save = NULL, text[512];
	const char *key, *name;
	json_t *row, *value;

	snprintf(list, sizeof(list), "%s", wanted != NULL ? wanted : "");
	for (char *p = strtok_r(list, " ", &save); p != NULL; p = strtok_r(NULL, " ", &save))
		find_column(cs, p, true);
	json_object_foreach ((json_t *)(uintptr_t)rows, key, row) {
		cs->key = (int)strlen(key) > cs->key ? (int)strlen(key) : cs->key;
		json_object_foreach (row, name, value) {
			struct column *c = find_column(cs, name, wanted == NULL);
			const int width = (int)strlen(format_cell(value, text, sizeof(text)));

			if (c == NULL)
				continue;
			c->width = width > c->width ? width : c->width;
			c->text = c->text || json_is_string(value) || json_is_array(value);
		}
	}
}

static void print_cell(const struct column *c, const char *text, FILE *out)
{
	fprintf(out, "  %*s", c->text ? -c->width : c->width, text);
}

static void print_rows(const struct columns *cs, const json_t *rows, int indent, FILE *out)
{
	char text[512];
	const char *key;
	json_t *row;

	fprintf(out, "%*s%*s", indent, "", cs->key, "");
	for (size_t i = 0; i < cs->n; i++)
		print_cell(&cs->c[i], cs->c[i].name, out);
	fprintf(out, "\n");
	json_object_foreach ((json_t *)(uintptr_t)rows, key, row) {
		fprintf(out, "%*s%-*s", indent, "", cs->key, key);
		for (size_t i = 0; i < cs->n; i++) {
			const json_t *v = json_object_get(row, cs->c[i].name);

			print_cell(&cs->c[i], v != NULL ? format_cell(v, text, sizeof(text)) : "",
				   out);
		}
		fprintf(out, "\n");
	}
}

/* Rows become columns. */
static json_t *transpose_rows(const struct columns *cs, const json_t *rows)
{
	json_t *all = json_object(), *row;
	const char *key;

	for (size_t i = 0; i < cs->n; i++) {
		json_t *line = json_object();

		json_object_foreach ((json_t *)(uintptr_t)rows, key, row) {
			json_t *v = json_object_get(row, cs->c[i].name);

			if (v != NULL)
				json_object_set(line, key, v);
		}
		json_object_set_new(all, cs->c[i].name, line);
	}
	return all;
}

static void print_table(const json_t *rows, const char *wanted, int indent, FILE *out)
{
	struct columns cs = {.n = 0};
	size_t width = 0;

	measure_columns(&cs, rows, wanted);
	for (size_t i = 0; i < cs.n; i++)
		width += (size_t)cs.c[i].width + 2;
	if (width + (size_t)cs.key > LINE && json_object_size(rows) < cs.n) {
		json_t *t = transpose_rows(&cs, rows);
		struct columns other = {.n = 0};

		measure_columns(&other, t, NULL);
		print_rows(&other, t, indent, out);
		json_decref(t);
		return;
	}
	print_rows(&cs, rows, indent, out);
}

static void print_value(const json_t *v, const char *wanted, int indent, FILE *out);

static void print_object(const json_t *v, const char *wanted, int indent, FILE *out)
{
	const char *key;
	char text[512];
	json_t *value;
	int width = 0;

	if (json_object_size(v) == 0) {
		fprintf(out, "%*s(none)\n", indent, "");
		return;
	}
	if (is_rows(v)) {
		print_table(v, wanted, indent, out);
		return;
	}
	json_object_foreach ((json_t *)(uintptr_t)v, key, value)
		if (!json_is_object(value) && (int)strlen(key) > width)
			width = (int)strlen(key);
	json_object_foreach ((json_t *)(uintptr_t)v, key, value)
		if (!json_is_object(value))
			fprintf(out, "%*s%-*s  %s\n", indent, "", width, key,
				format_cell(value, text, sizeof(text)));
	json_object_foreach ((json_t *)(uintptr_t)v, key, value) {
		if (!json_is_object(value))
			continue;
		fprintf(out, "%*s%s\n", indent, "", key);
		print_value(value, wanted, indent + 2, out);
	}
}

static void print_value(const json_t *v, const char *wanted, int indent, FILE *out)
{
	char text[512];
	size_t i;
	json_t *part;

	if (json_is_object(v)) {
		print_object(v, wanted, indent, out);
	} else if (json_is_array(v)) {
		if (json_array_size(v) == 0)
			fprintf(out, "%*s(none)\n", indent, "");
		json_array_foreach ((json_t *)(uintptr_t)v, i, part) {
			if (is_plain(part))
				fprintf(out, "%*s%s\n", indent, "",
					format_value(part, text, sizeof(text)));
			else
				print_value(part, wanted, indent, out);
		}
	} else if (json_is_string(v)) { /* may be long */
		fprintf(out, "%*s%s\n", indent, "", json_string_value(v));
	} else {
		fprintf(out, "%*s%s\n", indent, "", format_value(v, text, sizeof(text)));
	}
}

void table_print(const json_t *v, const char *columns, FILE *out)
{
	print_value(v, columns, 0, out);
}

const char *table_format_bar(double share, unsigned int width, char *buf, size_t len)
{
	unsigned int full, i;

	if (!(share > 0))
		share = 0;
	if (share > 1)
		share = 1;
	full = (unsigned int)lround(share * width);
	for (i = 0; i < width && i + 1 < len; i++)
		buf[i] = i < full ? '#' : '.';
	buf[i] = '\0';
	return buf;
}

const char *table_format_short(double v, char *buf, size_t len)
{
	static const char unit[] = " kMGTP";
	size_t u = 0;

	while (fabs(v) >= 999.5 && u + 2 < sizeof(unit)) {
		v /= 1000;
		u++;
	}
	snprintf(buf, len, "%.*f%.*s", u == 0 || fabs(v) >= 99.95 ? 0 : 1, v, u != 0, unit + u);
	return buf;
}
