"""Population random measure embeddings (PRME) in Pyro: Bayesian nonparametric models with learned correlations."""

from pyro_prme.answers.export import to_inference_data, to_pyldavis
from pyro_prme.answers.posterior import Posterior
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.readers import load_corpus, save_corpus
from pyro_prme.corpora.splits import TokenSplit
from pyro_prme.elbo import Bound, ClosedForm_ELBO
from pyro_prme.estimator import PRMETopicModel
from pyro_prme.guide import ClosedFormGuide, PRMEGuide
from pyro_prme.inference.build import build
from pyro_prme.inference.gibbs import Gibbs
from pyro_prme.models.diln import DILN
from pyro_prme.models.networks.encoders import BagOfWordsEncoder, TopicEncoder, encoder_of_depth
from pyro_prme.models.networks.layers import Decoder, decoder_of_depth
from pyro_prme.models.prme import PRME, ShapePRME
from pyro_prme.models.topic_model import HDP, TopicModel
from pyro_prme.plan import Plan
from pyro_prme.rules import Rule, Run, register
from pyro_prme.runs.run_folder import load_run, save_run
from pyro_prme.train import Trainer

__version__ = "0.1.0"

__all__ = [
    "DILN",
    "HDP",
    "PRME",
    "BagOfWordsEncoder",
    "Batch",
    "Bound",
    "ClosedFormGuide",
    "ClosedForm_ELBO",
    "Corpus",
    "Decoder",
    "Gibbs",
    "PRMEGuide",
    "PRMETopicModel",
    "Plan",
    "Posterior",
    "Rule",
    "Run",
    "ShapePRME",
    "TokenSplit",
    "TopicEncoder",
    "TopicModel",
    "Trainer",
    "build",
    "decoder_of_depth",
    "encoder_of_depth",
    "load_corpus",
    "load_run",
    "register",
    "save_corpus",
    "save_run",
    "to_inference_data",
    "to_pyldavis",
]
