/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvroute-explain: runs a scenario (one JSON object a line) through the router's libraries in
 * virtual time and writes every decision with its terms.
 */
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kvr_conf.h"

int main(int argc, char **argv)
{
	FILE *in = stdin;
	static struct kvr_sc_world w;
	static struct ex_run run;
	int status;

	if (kvr_conf_version(argc, argv, "kvroute-explain", stdout))
		return 0;
	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		printf("kvroute-explain: routing decisions of a scenario, in virtual time\n\n"
		       "usage: kvroute-explain FILE|-\n\n"
		       "FILE holds one JSON object a line; answers, one a line, go to standard "
		       "output\n");
		return 0;
	}
	if (argc != 2) {
		fprintf(stderr, "usage: kvroute-explain FILE|-\n");
		return 2;
	}
	if (strcmp(argv[1], "-") != 0)
		in = fopen(argv[1], "r");
	if (in == NULL) {
		fprintf(stderr, "kvroute-explain: %s: %s\n", argv[1], strerror(errno));
		return 2;
	}
	if (!ex_blocks_start()) {
		fprintf(stderr, "kvroute-explain: the EAL does not start\n");
		return 2;
	}
	STAILQ_INIT(&run.todo);
	w.own = &run;
	kvr_sc_world_init(&w, &ex_executor, stdout);
	status = kvr_sc_script(&w, in);
	if (ferror(in) || fflush(stdout) != 0)
		status = 2;
	fclose(in);
	return status;
}
