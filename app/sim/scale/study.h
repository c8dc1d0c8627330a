/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCALE_STUDY_H
#define SCALE_STUDY_H

/**
 * @file
 * kvroute-sim --scale: the cluster model with thousands of ranks; no packets. A table on standard
 * output, and a plot. One thread.
 */

#include <stdint.h>
#include <stdio.h>

#define SCALE_POLICIES 3u
#define SCALE_POINTS   16u

/** One policy at one number of ranks. */
struct scale_result {
	double hits;	/* share of prompt tokens found cached */
	double balance; /* tokens computed by the busiest rank / mean */
	double queue_s; /* mean time until the prefill begins */
	double queue99_s;
	double ttft_s;	    /* mean */
	double decision_us; /* lookup, choice and booking, on this machine */
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

/** One row of four charts per study. @return 0 or -errno. */
int scale_plot(const char *path, const struct scale_study *s, uint32_t n);

#endif
