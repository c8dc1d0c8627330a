/* SPDX-License-Identifier: BSD-3-Clause */
/* Command line options from an option table, parsed by getopt_long(), and the text of --help. */
#include "kvr_conf.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "version.h"

/* Table for getopt_long(): one row for each option, and --help. */
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

static int parse_options(const struct kvr_opt *table, const struct option *rows, void *obj,
			 int argc, char **argv, int *first, char *err, size_t errlen)
{
	char why[200];
	int at, c;

	optind = 0; /* glibc: also reset the state of an earlier call */
	opterr = 0;
	while ((c = getopt_long(argc, argv, "h", rows, &at)) != -1) {
		if (c == 'h')
			return 0;
		if (c != 'o') {
			snprintf(err, errlen, "%s: unknown option or missing value, see --help",
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
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	kvr_conf_defaults(table, obj);
	rc = parse_options(table, rows, obj, argc, argv, first, err, errlen);
	free(rows);
	return rc;
}

int kvr_conf_args(const struct kvr_opt *table, void *obj, int argc, char **argv, char *err,
		  size_t errlen)
{
	int first, rc = kvr_conf_args_rest(table, obj, argc, argv, &first, err, errlen);

	if (rc != 1 || first == argc)
		return rc;
	snprintf(err, errlen, "%s: unexpected argument, see --help", argv[first]);
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

	for (const struct kvr_opt *opt = table; opt->name != NULL; opt++) {
		kvr_conf_print(opt, obj, text, sizeof(text));
		fprintf(out, "  --%-*s %s", width, opt->name, opt->help);
		for (size_t k = 0; opt->choices != NULL && opt->choices[k] != NULL; k++)
			fprintf(out, "%s%s", k == 0 ? " (" : ", ", opt->choices[k]);
		fprintf(out, "%s", opt->choices != NULL ? ")" : "");
		if (opt->type != KVR_OPT_BOOL)
			fprintf(out, " [%s%s%s]", text, opt->unit != NULL && *opt->unit ? " " : "",
				opt->unit != NULL ? opt->unit : "");
		fprintf(out, "\n");
	}
	fprintf(out, "  --%-*s print this text\n", width, "help");
	fprintf(out, "  --%-*s print name and version\n", width, "version");
	fprintf(out, "If an option is repeated, the last one wins. A list is one value.\n");
}
