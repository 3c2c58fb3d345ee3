"""Callbacks for `fit`: alternating proxies, evaluation, exact resume."""

from keras_gsp.callbacks.chance_constrained import ChanceConstrainedProgramming
from keras_gsp.callbacks.exact_resume.exact_resume import ExactResume
from keras_gsp.callbacks.retrieval_evaluation import RetrievalEvaluation

__all__ = ["ChanceConstrainedProgramming", "ExactResume", "RetrievalEvaluation"]
