"""Independent, slow implementations that the library is held against. Written from the paper, loop
by loop.
"""

import torch
from torch import nn


def without(u, j):
    """The features without coordinate j."""
    return torch.cat([u[:, :j], u[:, j + 1 :]], dim=1)


def naive_decomposition(g, u):
    """Ũ of a FeatureDecomposition's own weights, one feature at a time, by really leaving the
    coordinate out.
    """
    columns = []
    for j in range(u.shape[1]):
        if g.sharing == "strict":
            visible = without(u, j)
            bias = g.first_bias
        else:
            visible = torch.cat([u[:, :j], torch.zeros_like(u[:, :1]), u[:, j + 1 :]], dim=1)
            bias = g.first_bias[j]
        hidden = visible @ g.first_weight.T + bias
        for layer in g.layers:
            hidden = layer(g.activation(hidden))
        columns.append(hidden[:, 0])
    return torch.stack(columns, dim=1)


def naive_decomposition_loss(u, correlated):
    n, p = u.shape
    total = 0
    for i in range(n):
        for j in range(p):
            total = total + (u[i, j] - correlated[i, j]) ** 2
    return total / (n * p)


def mean(values):
    return sum(values) / len(values)


def centred(columns):
    """Each column less its mean, one column after the other."""
    return torch.stack([column - mean(column) for column in columns.T], dim=1)


def naive_decorrelation_loss(u, correlated, center):
    n, p = u.shape
    if center == "batch":
        u = centred(u)
        correlated = centred(correlated)
    total = u.new_zeros(())
    for j in range(p):
        cross = 0
        for k in range(p):
            if k != j:
                cross = cross + mean([correlated[i, j] * u[i, k] for i in range(n)])
        total = total + (cross / (p - 1)) ** 2
    return total / p


def exact_decorrelation_loss(u, correlated, center):
    """The same without the loops, where those would take too long."""
    if center == "batch":
        u = u - u.mean(0)
        correlated = correlated - correlated.mean(0)
    cross = correlated.T @ u / len(u)
    of_others = cross.sum(1) - cross.diagonal()
    return (of_others / (u.shape[1] - 1)).square().mean()


def naive_parts(u, correlated):
    """The level and the covariance part of the paper's form, feature by feature."""
    n, p = u.shape
    level = u.new_zeros(())
    covariance = u.new_zeros(())
    for j in range(p):
        others = [mean(row) for row in without(u, j)]
        predicted = correlated[:, j]
        mean_others = mean(others)
        mean_predicted = mean(predicted)
        products = [(predicted[i] - mean_predicted) * (others[i] - mean_others) for i in range(n)]
        level = level + (mean_predicted * mean_others) ** 2
        covariance = covariance + mean(products) ** 2
    return level / p, covariance / p


class Algorithm1:
    """The paper's Algorithm 1, transcribed: plain SGD on g, then on the model, all by hand."""

    def __init__(self, model, head, g_weights, lr_g, lr_model):
        self.model = model
        self.head = head
        # W1 (h, p-1), b1, w2 (1, h), b2
        self.g_weights = [w.clone().requires_grad_() for w in g_weights]
        self.lr_g = lr_g
        self.lr_model = lr_model

    def g(self, u):
        w1, b1, w2, b2 = self.g_weights
        columns = []
        for j in range(u.shape[1]):
            hidden = torch.relu(without(u, j) @ w1.T + b1)
            columns.append(hidden @ w2[0] + b2)
        return torch.stack(columns, 1)

    def step(self, x, y):
        with torch.no_grad():
            u = self.model(x)
        loss_g = naive_decomposition_loss(u, self.g(u))
        gradients = torch.autograd.grad(loss_g, self.g_weights)
        with torch.no_grad():
            for weight, gradient in zip(self.g_weights, gradients, strict=True):
                weight -= self.lr_g * gradient
        u = self.model(x)
        loss_decorr = naive_decorrelation_loss(u, self.g(u), "none")
        loss = nn.functional.cross_entropy(self.head(u), y) + loss_decorr
        parameters = [*self.model.parameters(), *self.head.parameters()]
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= self.lr_model * gradient
        return loss_g.detach(), loss_decorr.detach()
