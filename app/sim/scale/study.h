/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCALE_STUDY_H
#define SCALE_STUDY_H

/**
 * @file
 * kvroute-sim --scale: no packets, but the scheduler and the prefix table in front of thousands of
 * ranks, by the drivers of perf/quality. A table on standard output, and a plot. One thread.
 */

#include <stdint.h>
#include <stdio.h>

#define SCALE_POLICIES 3u
#define SCALE_POINTS   16u

/** One policy at one number of ranks. */
struct scale_result {
	double hits;	/* of all prompt tokens, found cached */
	double balance; /* tokens that the busiest rank has computed, of the mean */
	double queue_s; /* a request waits for its prefill to begin, mean */
	double queue99_s;
	double ttft_s;	    /* mean */
	double decision_us; /* looking up, choosing, booking; of this machine */
};

/** A workload. */
struct scale_study {
	const char *name;
	uint32_t n; /* points */
	uint32_t ranks[SCALE_POINTS], requests[SCALE_POINTS];
	struct scale_result at[SCALE_POINTS][SCALE_POLICIES];
};

extern const char *const scale_policies[SCALE_POLICIES];

/** argv[0] is --scale. @return exit code. */
int scale_main(int argc, char **argv);

/** A row of four charts for each study. @return 0 or -errno. */
int scale_plot(const char *path, const struct scale_study *s, uint32_t n);

#endif
