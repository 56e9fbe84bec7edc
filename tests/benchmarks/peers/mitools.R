# What R makes of copies of records, kept in mitools.json: run in this folder by
#   Rscript mitools.R > mitools.json
# R, mitools and survey are Debian's packages r-base-core, r-cran-mitools and r-cran-survey.
suppressMessages({
  library(mitools)
  library(survey)
})
copies <- read.csv("mitools_copies.csv", na.strings = "")
listed <- imputationList(split(copies, copies$copy))
line <- function(name, value) sprintf('"%s": %.17g', name, value)
combined <- function(fits) {
  made <- MIcombine(fits)
  errors <- sqrt(diag(vcov(made)))
  reach <- qt(0.975, made$df) * errors  # as summary() has it; confint() takes the normal
  rows <- sapply(seq_along(coef(made)), function(j) {
    value <- coef(made)[[j]]
    facts <- c(value, errors[[j]], value - reach[[j]], value + reach[[j]])
    figures <- line(c("estimate", "standard_error", "lower", "upper"), facts)
    sprintf('    "%s": {%s}', names(coef(made))[[j]], paste(figures, collapse = ", "))
  })
  paste0("{\n", paste(rows, collapse = ",\n"), "\n  }")
}
design <- suppressWarnings(svydesign(ids = ~1, data = listed))
versions <- c(R = as.character(getRversion()), mitools = as.character(packageVersion("mitools")),
              survey = as.character(packageVersion("survey")))
cat("{\n")
cat('  "versions": {', paste(sprintf('"%s": "%s"', names(versions), versions), collapse = ", "), "},\n", sep = "")
cat('  "least squares": ', combined(with(listed, lm(y ~ x * place))), ",\n", sep = "")
logistic <- with(listed, glm(I(y > 8) ~ x + place, family = binomial, epsilon = 1e-14))
cat('  "logistic": ', combined(logistic), ",\n", sep = "")
cat('  "survey mean": ', combined(with(design, svymean(~y))), "\n}\n", sep = "")
