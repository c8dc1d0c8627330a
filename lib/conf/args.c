/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_conf.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "version.h"

/* getopt's table: one row for each option, and --help. */
static struct option *make_rows(const struct kvr_opt *table)
{
	struct option *rows;
	size_t n = 0;

	while (table[n].name != NULL)
		n++;
	rows = calloc(n + 2, sizeof(*rows));
	for (size_t i = 0; rows != NULL && i < n; i++)
		rows[i] = (struct option){
			table[i].name,
			table[i].type == KVR_OPT_BOOL ? no_argument : required_argument, NULL, 'o'};
	if (rows != NULL)
		rows[n] = (struct option){"help", no_argument, NULL, 'h'};
	return rows;
}

static int parse(const struct kvr_opt *table, const struct option *rows, void *obj, int argc,
		 char **argv, int *first, char *err, size_t errlen)
{
	char why[200];
	int at, c;

	optind = 0; /* glibc: also forget where an earlier call stopped */
	opterr = 0;
	while ((c = getopt_long(argc, argv, "h", rows, &at)) != -1) {
		if (c == 'h')
			return 0;
		if (c != 'o') {
			snprintf(err, errlen, "%s: unknown option or missing value; see --help",
				 argv[optind - 1]);
			return -EINVAL;
		}
		if (kvr_conf_set(table, obj, rows[at].name, optarg != NULL ? optarg : "yes", why,
				 sizeof(why)) < 0) {
			snprintf(err, errlen, "--%s: %s", rows[at].name, why);
			return -EINVAL;
		}
	}
	*first = optind;
	return 1;
}

int kvr_conf_args_rest(const struct kvr_opt *table, void *obj, int argc, char **argv, int *first,
		       char *err, size_t errlen)
{
	struct option *rows = make_rows(table);
	int rc;

	if (rows == NULL) {
		snprintf(err, errlen, "no memory");
		return -ENOMEM;
	}
	kvr_conf_defaults(table, obj);
	rc = parse(table, rows, obj, argc, argv, first, err, errlen);
	free(rows);
	return rc;
}

int kvr_conf_args(const struct kvr_opt *table, void *obj, int argc, char **argv, char *err,
		  size_t errlen)
{
	int first, rc = kvr_conf_args_rest(table, obj, argc, argv, &first, err, errlen);

	if (rc != 1 || first == argc)
		return rc;
	snprintf(err, errlen, "%s: unexpected; see --help", argv[first]);
	return -EINVAL;
}

bool kvr_conf_version(int argc, char **argv, const char *name, FILE *out)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--version") == 0) {
			fprintf(out, "%s " KVR_VERSION "\n", name);
			return true;
		}
	return false;
}

void kvr_conf_args_help(const struct kvr_opt *table, const void *obj, int width, FILE *out)
{
	char text[4096];

	for (const struct kvr_opt *o = table; o->name != NULL; o++) {
		kvr_conf_print(o, obj, text, sizeof(text));
		fprintf(out, "  --%-*s %s", width, o->name, o->help);
		for (size_t k = 0; o->choices != NULL && o->choices[k] != NULL; k++)
			fprintf(out, "%s%s", k == 0 ? " (" : ", ", o->choices[k]);
		fprintf(out, "%s", o->choices != NULL ? ")" : "");
		if (o->type != KVR_OPT_BOOL)
			fprintf(out, " [%s%s%s]", text, o->unit != NULL && *o->unit ? " " : "",
				o->unit != NULL ? o->unit : "");
		fprintf(out, "\n");
	}
	fprintf(out, "  --%-*s this text\n", width, "help");
	fprintf(out, "  --%-*s name and version\n", width, "version");
	fprintf(out, "Of an option that is given twice the last counts; lists are one value.\n");
}
